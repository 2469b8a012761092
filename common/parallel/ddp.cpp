#include "parallel/ddp.h"

#include "base/check.h"
#include "comm/replicas.h"
#include "device/memory_tracker.h"
#include "device/storage.h"
#include "tensor/cast.h"
#include "tensor/tree_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace fsdp::parallel {

namespace {

/// A parameter's place in its bucket.
struct Slot {
  std::string path;
  Variable variable;
  int hook = -1;
  std::int64_t begin = 0;
  bool is_complete = false;  // its gradient of this micro-step is there
};

/// Neighboring parameters whose gradients travel together. Gradients are produced in its flat
/// storage, which is one leaf of the tree of additions at the end of every micro-step.
struct Bucket {
  Bucket(int index, Device device, DType dtype, DType its_reduce_dtype, std::int64_t numel)
      : name(fmt::format("bucket{}", index)),
        owner(std::make_shared<const Owner>(Owner{"", "ddp " + name})),
        flat(Tensor::view_of(
            std::make_shared<Storage>(device, static_cast<std::size_t>(numel) * size_of(dtype),
                                      MemoryKind::unsharded_grad, owner),
            0, {numel}, dtype)),
        reduce_dtype(its_reduce_dtype),
        micro_batches(MemoryKind::unsharded_grad, owner),
        reductions(MemoryKind::unsharded_grad, owner) {}

  std::string name;
  std::shared_ptr<const Owner> owner;
  Tensor flat;
  DType reduce_dtype;
  std::vector<Slot> slots;
  std::size_t missing = 0;        // slots whose gradient is not there yet
  TreeAccumulator micro_batches;  // of this rank, since the last reduction
  TreeAccumulator reductions;     // of this step, over all ranks
  Tensor reduced;                 // in flight
  Work work;

  /// The flat gradient of this micro-step in the dtype of the sums. What it was is freed.
  Tensor leaf() const {
    const AllocationScope scope(MemoryKind::unsharded_grad, owner);
    return recast(flat, reduce_dtype);
  }
  void compress(DType dtype) {
    const AllocationScope scope(MemoryKind::unsharded_grad, owner);
    reduced = recast(reduced, dtype);
  }
  Tensor take_reduced() {
    const AllocationScope scope(MemoryKind::unsharded_grad, owner);
    return recast(std::exchange(reduced, {}), reduce_dtype);
  }
};

}  // namespace

struct DdpGradients::Impl {
  std::shared_ptr<ProcessGroup> group;
  std::vector<std::unique_ptr<Bucket>> buckets;  // last parameters first
  std::vector<optim::Piece> pieces;              // in registration order
  optim::ReduceOptions how;
  optim::StepPlan plan{.micro_steps = 0};  // none begun
  int micro_step = 0;
  std::size_t next_bucket = 0;  // the first one not yet closed in this micro-step

  void start_micro_step();
  void on_gradient(Bucket& bucket, std::size_t index);
  void close(Bucket& bucket);
};

void DdpGradients::Impl::start_micro_step() {
  next_bucket = 0;
  for (const auto& bucket : buckets) {
    bucket->flat.storage()->allocate();
    bucket->missing = bucket->slots.size();
    for (Slot& slot : bucket->slots) {
      slot.is_complete = false;
      slot.variable.reset_grad_buffer();
    }
  }
}

void DdpGradients::Impl::on_gradient(Bucket& bucket, std::size_t index) {
  Slot& slot = bucket.slots[index];
  FSDP_CHECK(bucket.flat.storage()->is_allocated() && micro_step < plan.micro_steps,
             "'{}' got a gradient outside begin_step() … end_micro_step()", slot.path);
  FSDP_CHECK(!slot.is_complete, "'{}' got a second gradient in micro-step {}", slot.path,
             micro_step);
  slot.is_complete = true;
  --bucket.missing;
  // Buckets are closed in one order, whatever order backward finishes them in on this rank: the
  // order of collectives must be the same everywhere.
  while (next_bucket < buckets.size() && buckets[next_bucket]->missing == 0) {
    close(*buckets[next_bucket++]);
  }
}

// The bucket is this micro-step's leaf from here on; at the last of a reduction it goes on its way.
void DdpGradients::Impl::close(Bucket& bucket) {
  for (const Slot& slot : bucket.slots) {
    if (!slot.variable.grad_written()) ops::fill(slot.variable.grad_buffer(), 0);
  }
  if (plan.micro_steps_per_reduction > 1) {
    bucket.micro_batches.push(bucket.leaf());
    if (!plan.ends_reduction(micro_step)) return;
    bucket.reduced = bucket.micro_batches.fold();
  } else {
    bucket.reduced = bucket.leaf();
  }
  if (how.compression) bucket.compress(*how.compression);
  bucket.work = group->all_reduce(bucket.reduced, ReduceOp::sum, {bucket.name, Phase::gradient});
  if (!how.overlap) bucket.work.wait();
}

DdpGradients::DdpGradients(std::vector<std::pair<std::string, Variable>> parameters,
                           std::shared_ptr<ProcessGroup> group, std::size_t bucket_bytes,
                           const optim::MasterWeights& masters, const optim::ReduceOptions& how)
    : impl_(std::make_unique<Impl>()) {
  FSDP_CHECK(group != nullptr, "DDP needs a process group, but got none");
  FSDP_CHECK(bucket_bytes > 0, "a DDP bucket needs room for at least one byte");
  impl_->group = std::move(group);
  impl_->how = how;
  std::erase_if(parameters, [](const auto& each) { return !each.second.requires_grad(); });
  for (const auto& [path, variable] : parameters) {
    const Tensor& master = masters.of(variable);
    impl_->pieces.push_back(
        {.key = path, .param = master.view({master.numel()}), .grad = {}, .unit = {}});
  }

  for (std::size_t end = parameters.size(); end > 0;) {
    const Tensor& last = parameters[end - 1].second.data();
    const DType master_dtype = masters.of(parameters[end - 1].second).dtype();
    std::size_t begin = end;
    std::size_t nbytes = 0;
    while (begin > 0) {
      const Tensor& data = parameters[begin - 1].second.data();
      const bool is_alike = data.dtype() == last.dtype() && data.device() == last.device() &&
                            masters.of(parameters[begin - 1].second).dtype() == master_dtype;
      const bool fits = is_alike && nbytes + data.nbytes() <= bucket_bytes;
      if (begin < end && !fits) break;
      nbytes += data.nbytes();
      --begin;
    }
    impl_->buckets.push_back(
        std::make_unique<Bucket>(static_cast<int>(impl_->buckets.size()), last.device(),
                                 last.dtype(), masters.reduce_dtype_of(parameters[end - 1].second),
                                 static_cast<std::int64_t>(nbytes / size_of(last.dtype()))));
    Bucket& bucket = *impl_->buckets.back();
    std::int64_t at = 0;
    for (std::size_t i = begin; i < end; ++i) {
      auto& [path, variable] = parameters[i];
      bucket.slots.push_back({.path = path, .variable = variable, .begin = at});
      variable.set_grad_buffer(
          Tensor::view_of(bucket.flat.storage(), at, variable.shape(), last.dtype()));
      at += variable.data().numel();
      const std::size_t index = bucket.slots.size() - 1;
      bucket.slots.back().hook = variable.register_post_accumulate_grad_hook(
          [impl = impl_.get(), &bucket, index](const Variable&) {
            impl->on_gradient(bucket, index);
          });
    }
    end = begin;
  }
}

DdpGradients::~DdpGradients() {
  for (const auto& bucket : impl_->buckets) {
    for (Slot& slot : bucket->slots) {
      slot.variable.remove_post_accumulate_grad_hook(slot.hook);
      slot.variable.set_grad_buffer({});
    }
  }
}

void DdpGradients::begin_step(const optim::StepPlan& plan) {
  plan.validate();
  zero_grad();
  impl_->plan = plan;
  impl_->micro_step = 0;
  for (const auto& bucket : impl_->buckets) {
    bucket->work = {};
    bucket->micro_batches.clear();
    bucket->reductions.clear();
  }
  impl_->start_micro_step();
}

void DdpGradients::end_micro_step() {
  FSDP_CHECK(impl_->micro_step < impl_->plan.micro_steps,
             "this step was planned with {} micro-steps, which have all ended",
             impl_->plan.micro_steps);
  while (impl_->next_bucket < impl_->buckets.size()) {  // these wait for parameters nobody used
    impl_->close(*impl_->buckets[impl_->next_bucket++]);
  }
  if (impl_->plan.ends_reduction(impl_->micro_step)) {
    const auto& replicas = impl_->group->replicas();
    for (const auto& bucket : impl_->buckets) {
      if (replicas == nullptr) break;
      bucket->work.wait();
      bucket->work =
          replicas->all_reduce(bucket->reduced, ReduceOp::sum, {bucket->name, Phase::gradient});
    }
    for (const auto& bucket : impl_->buckets) {
      bucket->work.wait();
      bucket->reductions.push(bucket->take_reduced());
    }
  }
  if (++impl_->micro_step < impl_->plan.micro_steps) impl_->start_micro_step();
}

void DdpGradients::finish_gradients() {
  FSDP_CHECK(impl_->micro_step == impl_->plan.micro_steps && impl_->micro_step > 0,
             "finish_gradients() was called after {} of {} micro-steps", impl_->micro_step,
             impl_->plan.micro_steps);
  const ProcessGroup& group = *impl_->group;
  const double divisor = impl_->plan.divisor(group.size() * replica_count(group));
  auto piece = impl_->pieces.end();
  for (const auto& bucket : impl_->buckets) {
    const AllocationScope scope(MemoryKind::unsharded_grad, bucket->owner);
    const DType dtype = piece[-1].param.dtype();  // a bucket's masters have one
    const Tensor mean = cast(bucket->reductions.fold(), dtype);
    ops::scale(mean, 1 / divisor);
    piece -= static_cast<std::ptrdiff_t>(bucket->slots.size());
    for (std::size_t i = 0; i < bucket->slots.size(); ++i) {
      Slot& slot = bucket->slots[i];
      const std::int64_t numel = slot.variable.data().numel();
      optim::Piece& target = piece[static_cast<std::ptrdiff_t>(i)];
      target.grad = mean.narrow(0, slot.begin, numel);
      slot.variable.set_grad(target.grad.view(slot.variable.shape()));
    }
  }
}

std::vector<optim::Piece>& DdpGradients::pieces() { return impl_->pieces; }

// All ranks hold all gradients: each counts every W-th piece. (In a mesh, each replica counts all
// of them, as it does with shards.)
void DdpGradients::add_squares(ExactSquareSum& sum) {
  const auto size = static_cast<std::size_t>(impl_->group->size());
  for (auto i = static_cast<std::size_t>(impl_->group->rank()); i < impl_->pieces.size();
       i += size) {
    sum.add(impl_->pieces[i].grad);
  }
}

void DdpGradients::zero_grad() {
  for (optim::Piece& piece : impl_->pieces) piece.grad = {};
  for (const auto& bucket : impl_->buckets) {
    for (Slot& slot : bucket->slots) slot.variable.set_grad({});
  }
}

}  // namespace fsdp::parallel
