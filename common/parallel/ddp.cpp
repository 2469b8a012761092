#include "parallel/ddp.h"

#include "base/check.h"
#include "comm/replicas.h"
#include "device/memory_tracker.h"
#include "device/storage.h"
#include "parallel/bucket_queue.h"
#include "tensor/cast.h"

#include <utility>

namespace fsdp::parallel {

struct DdpGradients::Impl {
  std::shared_ptr<ProcessGroup> group;
  optim::ReduceOptions how;
  BucketQueue queue;                 // last parameters first
  std::vector<optim::Piece> pieces;  // in registration order
  std::vector<Tensor> flat;          // of the buckets: gradients are produced in it

  void start_micro_step();
  void reduce(Bucket& bucket) const;
};

void DdpGradients::Impl::start_micro_step() {
  for (std::size_t i = 0; i < flat.size(); ++i) {
    flat[i].storage()->allocate();
    queue.buckets()[i]->leaf = flat[i];
  }
  for (auto& [path, variable] : queue.parameters()) variable.reset_grad_buffer();
}

void DdpGradients::Impl::reduce(Bucket& bucket) const {
  if (how.compression) bucket.cast_leaf(*how.compression);
  bucket.work = group->all_reduce(bucket.leaf, ReduceOp::sum, {bucket.name, Phase::gradient});
  if (!how.overlap) bucket.work.wait();
}

DdpGradients::DdpGradients(std::vector<std::pair<std::string, Variable>> parameters,
                           std::shared_ptr<ProcessGroup> group, std::size_t bucket_bytes,
                           const optim::MasterWeights& masters, const optim::ReduceOptions& how)
    // Gradients are produced in their buckets: there is nothing to take.
    : impl_(new Impl{.group = std::move(group),
                     .how = how,
                     .queue{std::move(parameters), [](std::size_t) {},
                            [this](Bucket& bucket) { impl_->reduce(bucket); }},
                     .pieces = {},
                     .flat = {}}) {
  FSDP_CHECK(impl_->group != nullptr, "DDP needs a process group, but got none");
  FSDP_CHECK(bucket_bytes > 0, "a DDP bucket needs room for at least one byte");
  BucketQueue& queue = impl_->queue;
  for (const auto& [path, variable] : queue.parameters()) {
    const Tensor& master = masters.of(variable);
    impl_->pieces.push_back(
        {.key = path, .param = master.view({master.numel()}), .grad = {}, .unit = {}});
  }

  for (std::size_t end = impl_->pieces.size(); end > 0;) {
    const Variable& last = queue.parameters()[end - 1].second;
    std::vector<OwnedSlice> slices;
    std::size_t nbytes = 0;
    while (end > 0) {
      const Variable& variable = queue.parameters()[end - 1].second;
      const Tensor& data = variable.data();
      const bool is_alike = data.dtype() == last.data().dtype() &&
                            data.device() == last.data().device() &&
                            masters.of(variable).dtype() == masters.of(last).dtype();
      const bool fits = is_alike && nbytes + data.nbytes() <= bucket_bytes;
      if (!slices.empty() && !fits) break;
      nbytes += data.nbytes();
      slices.insert(slices.begin(), {.parameter = --end, .numel = data.numel()});
    }
    const Bucket& bucket = queue.add(
        std::make_unique<Bucket>("ddp", queue.buckets().size(), masters.reduce_dtype_of(last)),
        slices);
    const DType dtype = last.data().dtype();
    impl_->flat.push_back(
        Tensor::view_of(std::make_shared<Storage>(last.data().device(), nbytes,
                                                  MemoryKind::unsharded_grad, bucket.memory),
                        0, {bucket.numel}, dtype));
    for (const Bucket::Slot& slot : bucket.slots) {
      Variable& variable = queue.parameters()[slot.slice.parameter].second;
      variable.set_grad_buffer(
          Tensor::view_of(impl_->flat.back().storage(), slot.at, variable.shape(), dtype));
    }
  }
}

DdpGradients::~DdpGradients() {
  for (auto& [path, variable] : impl_->queue.parameters()) variable.set_grad_buffer({});
}

void DdpGradients::begin_step(const optim::StepPlan& plan) {
  plan.validate();
  zero_grad();
  impl_->queue.begin_step(plan);
  impl_->start_micro_step();
}

void DdpGradients::end_micro_step() {
  impl_->queue.close_all();
  if (impl_->queue.ends_reduction()) {
    const auto& replicas = impl_->group->replicas();
    for (const auto& bucket : impl_->queue.buckets()) {
      if (replicas == nullptr) break;
      bucket->work.wait();
      bucket->work =
          replicas->all_reduce(bucket->leaf, ReduceOp::sum, {bucket->name, Phase::gradient});
    }
    for (const auto& bucket : impl_->queue.buckets()) {
      bucket->work.wait();
      bucket->cast_leaf(bucket->dtype);
      bucket->reductions.push(std::exchange(bucket->leaf, {}));
    }
  }
  if (impl_->queue.next_micro_step()) impl_->start_micro_step();
}

void DdpGradients::finish_gradients() {
  const ProcessGroup& group = *impl_->group;
  const double factor = impl_->queue.mean_factor(group.size() * replica_count(group));
  for (const auto& bucket : impl_->queue.buckets()) {
    const AllocationScope scope(MemoryKind::unsharded_grad, bucket->memory);
    const DType dtype =  // a bucket's masters have one
        impl_->pieces[bucket->slots.front().slice.parameter].param.dtype();
    const Tensor mean = cast(bucket->reductions.fold(), dtype);
    ops::scale(mean, factor);
    for (const Bucket::Slot& slot : bucket->slots) {
      optim::Piece& piece = impl_->pieces[slot.slice.parameter];
      piece.grad = mean.narrow(0, slot.at, slot.slice.numel);
      Variable& variable = impl_->queue.parameters()[slot.slice.parameter].second;
      variable.set_grad(piece.grad.view(variable.shape()));
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
  for (auto& [path, variable] : impl_->queue.parameters()) variable.set_grad({});
}

}  // namespace fsdp::parallel
