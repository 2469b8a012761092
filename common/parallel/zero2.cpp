#include "base/check.h"
#include "device/memory_tracker.h"
#include "device/storage.h"
#include "parallel/shard_sums.h"
#include "parallel/zero.h"
#include "tensor/cast.h"
#include "tensor/tree_sum.h"

#include <fmt/format.h>

#include <utility>

namespace fsdp::parallel {

namespace {

/// A slice's place among those that are reduced together.
struct OwnedSlot {
  OwnedSlice slice;
  std::int64_t at = 0;       // first element in the buffer
  std::size_t piece = 0;     // index into pieces(), on the owner
  bool is_complete = false;  // its gradient of this micro-step is there
  Tensor whole{};            // that gradient, if it is not copied at once
};

/// Slices of one owner whose gradients are reduced together, in the format of the sums.
struct OwnedBucket {
  OwnedBucket(std::size_t index, DType its_dtype, const SumsOffload& to_host)
      : name(fmt::format("bucket{}", index)),
        dtype(its_dtype),
        memory(std::make_shared<const Owner>(Owner{"", "zero2 " + name})),
        micro_batches(MemoryKind::unsharded_grad, memory),
        reductions(TreeAccumulator(MemoryKind::unsharded_grad, memory), name, nullptr, to_host) {}

  std::string name;
  DType dtype;
  std::shared_ptr<const Owner> memory;
  int owner = 0;
  std::int64_t numel = 0;
  bool is_direct = false;  // one whole parameter: its gradient itself travels
  std::vector<OwnedSlot> slots;
  std::size_t missing = 0;        // slots whose gradient is not there yet
  Tensor leaf;                    // (numel) of this micro-step, or in flight; undefined = none
  TreeAccumulator micro_batches;  // of this rank, since the last reduction
  ShardSums reductions;           // of this step, over all ranks; only on the owner
  Work work;

  void allocate(Device device) {
    if (leaf.is_defined()) return;
    const AllocationScope scope(MemoryKind::unsharded_grad, memory);
    leaf = Tensor::empty({numel}, dtype, device);
  }
  void take(const OwnedSlot& slot, const Tensor& whole) {
    allocate(whole.device());
    ops::copy(leaf.narrow(0, slot.at, slot.slice.numel),
              whole.narrow(0, slot.slice.begin, slot.slice.numel));
  }
  void cast_leaf(DType to) {
    const AllocationScope scope(MemoryKind::unsharded_grad, memory);
    leaf = cast(leaf, to);
  }
};

struct Place {
  OwnedBucket* bucket;
  std::size_t slot;
};

}  // namespace

struct Zero2Gradients::Impl {
  std::shared_ptr<ProcessGroup> group;
  std::vector<Parameter>& parameters;
  const optim::ZeroOptions& options;
  SumsOffload to_host;
  std::vector<int> hooks{};                  // of the parameters
  std::vector<std::vector<Place>> places{};  // of the parameters
  std::vector<std::unique_ptr<OwnedBucket>> buckets{};
  optim::StepPlan plan{.micro_steps = 0};  // none begun
  int micro_step = 0;
  bool is_open = false;         // between begin_step() and the last end_micro_step()
  std::size_t next_bucket = 0;  // the first one not yet closed in this micro-step
  OwnedBucket* in_flight = nullptr;

  void add_bucket(const std::vector<OwnedSlice>& slices);
  void start_micro_step();
  void on_gradient(std::size_t index);
  void complete_with_zeros(OwnedBucket& bucket);
  void close(OwnedBucket& bucket);
  void finish_in_flight();
};

void Zero2Gradients::Impl::add_bucket(const std::vector<OwnedSlice>& slices) {
  const Parameter& first = parameters[slices.front().parameter];
  buckets.push_back(std::make_unique<OwnedBucket>(buckets.size(), first.reduce_dtype, to_host));
  OwnedBucket& bucket = *buckets.back();
  bucket.owner = slices.front().owner;
  bucket.is_direct = slices.size() == 1 && slices.front().numel == first.numel() &&
                     first.variable.data().dtype() == first.reduce_dtype;
  for (const OwnedSlice& slice : slices) {
    places[slice.parameter].push_back({&bucket, bucket.slots.size()});
    bucket.slots.push_back({.slice = slice, .at = bucket.numel});
    bucket.numel += slice.numel;
  }
}

void Zero2Gradients::Impl::start_micro_step() {
  next_bucket = 0;
  for (const auto& bucket : buckets) {
    bucket->missing = bucket->slots.size();
    for (OwnedSlot& slot : bucket->slots) slot.is_complete = false;
  }
}

// The gradient moves into its buckets, and is freed unless it travels itself.
void Zero2Gradients::Impl::on_gradient(std::size_t index) {
  Parameter& parameter = parameters[index];
  FSDP_CHECK(is_open, "'{}' got a gradient outside begin_step() … end_micro_step()",
             parameter.path);
  for (const auto& [bucket, place] : places[index]) {
    OwnedSlot& slot = bucket->slots[place];
    FSDP_CHECK(!slot.is_complete, "'{}' got a second gradient in micro-step {}", parameter.path,
               micro_step);
    const Tensor whole = parameter.variable.grad().view({parameter.numel()});
    if (bucket->is_direct) {
      bucket->leaf = whole;
    } else if (!options.contiguous_gradients) {
      slot.whole = whole;
    } else {
      bucket->take(slot, whole);
    }
    slot.is_complete = true;
    --bucket->missing;
  }
  parameter.variable.set_grad({});
  // Buckets are closed in one order, whatever order backward finishes them in on this rank: the
  // order of collectives must be the same everywhere.
  while (next_bucket < buckets.size() && buckets[next_bucket]->missing == 0) {
    close(*buckets[next_bucket++]);
  }
}

// A parameter that took no part has the gradient +0.
void Zero2Gradients::Impl::complete_with_zeros(OwnedBucket& bucket) {
  for (const OwnedSlot& slot : bucket.slots) {
    if (slot.is_complete) continue;
    bucket.allocate(parameters[slot.slice.parameter].variable.data().device());
    ops::fill(bucket.leaf.narrow(0, slot.at, slot.slice.numel), 0);
  }
}

// The bucket is this micro-step's leaf from here on; at the last of a reduction it goes on its way.
void Zero2Gradients::Impl::close(OwnedBucket& bucket) {
  for (OwnedSlot& slot : bucket.slots) {
    if (slot.whole.is_defined()) bucket.take(slot, std::exchange(slot.whole, {}));
  }
  if (plan.micro_steps_per_reduction > 1) {
    bucket.micro_batches.push(bucket.leaf);
    bucket.leaf = {};
    if (!plan.ends_reduction(micro_step)) return;
    bucket.leaf = bucket.micro_batches.fold();
  }
  finish_in_flight();
  if (options.reductions.compression) bucket.cast_leaf(*options.reductions.compression);
  const Label label{bucket.name, Phase::gradient};
  if (options.reduce_scatter) {
    const Tensor out = group->rank() == bucket.owner ? bucket.leaf : Tensor();
    bucket.work = group->reduce(out, bucket.leaf, bucket.owner, ReduceOp::sum, label);
  } else {
    bucket.work = group->all_reduce(bucket.leaf, ReduceOp::sum, label);
  }
  in_flight = &bucket;
  if (!options.reductions.overlap) finish_in_flight();
}

// The owner has the sum, on its way to the host if gradients are offloaded, and the other ranks
// hold nothing of it any more.
void Zero2Gradients::Impl::finish_in_flight() {
  if (in_flight == nullptr) return;
  in_flight->work.wait();
  if (group->rank() == in_flight->owner) {
    in_flight->cast_leaf(in_flight->dtype);
    in_flight->reductions.push(in_flight->leaf);
  }
  in_flight->leaf = {};
  in_flight = nullptr;
}

Zero2Gradients::Zero2Gradients(const std::vector<std::pair<std::string, Variable>>& parameters,
                               const std::shared_ptr<ProcessGroup>& group,
                               const optim::ZeroOptions& options,
                               const optim::MasterWeights& masters)
    : ZeroGradients(parameters, group, options, masters),
      impl_(new Impl{.group = group,
                     .parameters = parameters_,
                     .options = options_,
                     .to_host = {offload_, std::make_shared<HostCopies>()}}) {
  impl_->places.resize(parameters_.size());
  for (const std::vector<OwnedSlice>& slices : reduce_groups()) impl_->add_bucket(slices);
  for (std::size_t piece = 0; piece < owned_.size(); ++piece) {
    for (const auto& [bucket, place] : impl_->places[owned_[piece].parameter]) {
      OwnedSlot& slot = bucket->slots[place];
      if (slot.slice == owned_[piece]) slot.piece = piece;
    }
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    impl_->hooks.push_back(parameters_[i].variable.register_post_accumulate_grad_hook(
        [impl = impl_.get(), i](const Variable&) { impl->on_gradient(i); }));
  }
}

Zero2Gradients::~Zero2Gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].variable.remove_post_accumulate_grad_hook(impl_->hooks[i]);
  }
}

void Zero2Gradients::begin_step(const optim::StepPlan& plan) {
  plan.validate();
  zero_grad();
  for (Parameter& each : parameters_) each.variable.set_grad({});
  impl_->plan = plan;
  impl_->micro_step = 0;
  impl_->is_open = true;
  impl_->in_flight = nullptr;
  for (const auto& bucket : impl_->buckets) {
    bucket->work = {};
    bucket->leaf = {};
    for (OwnedSlot& slot : bucket->slots) slot.whole = {};
    bucket->micro_batches.clear();
    bucket->reductions.clear();
  }
  impl_->start_micro_step();
}

void Zero2Gradients::end_micro_step() {
  FSDP_CHECK(impl_->is_open, "this step was planned with {} micro-steps, which have all ended",
             impl_->plan.micro_steps);
  while (impl_->next_bucket < impl_->buckets.size()) {  // these wait for parameters nobody used
    OwnedBucket& bucket = *impl_->buckets[impl_->next_bucket++];
    impl_->complete_with_zeros(bucket);
    impl_->close(bucket);
  }
  impl_->finish_in_flight();
  impl_->is_open = ++impl_->micro_step < impl_->plan.micro_steps;
  if (impl_->is_open) impl_->start_micro_step();
}

void Zero2Gradients::finish_gradients() {
  FSDP_CHECK(!impl_->is_open && impl_->micro_step > 0,
             "finish_gradients() was called after {} of {} micro-steps", impl_->micro_step,
             impl_->plan.micro_steps);
  const double divisor = impl_->plan.divisor(group_->size());
  for (const auto& bucket : impl_->buckets) {
    if (bucket->owner != group_->rank()) continue;
    const AllocationScope scope(MemoryKind::unsharded_grad, bucket->memory);
    const Tensor sum = bucket->reductions.fold();
    for (const OwnedSlot& slot : bucket->slots) {
      optim::Piece& piece = pieces_[slot.piece];
      piece.grad = cast(sum.narrow(0, slot.at, slot.slice.numel), piece.param.dtype());
      ops::scale(piece.grad, 1 / divisor);
    }
  }
}

}  // namespace fsdp::parallel
