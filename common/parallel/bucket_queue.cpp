#include "parallel/bucket_queue.h"

#include "base/check.h"
#include "device/memory_tracker.h"
#include "tensor/cast.h"
#include "tensor/ops.h"

#include <fmt/format.h>

namespace fsdp::parallel {

Bucket::Bucket(const std::string& engine, std::size_t index, DType its_dtype,
               const optim::SumsOffload& to_host)
    : name(fmt::format("bucket{}", index)),
      dtype(its_dtype),
      memory(std::make_shared<const Owner>(Owner{"", engine + " " + name})),
      micro_batches(MemoryKind::unsharded_grad, memory),
      reductions(TreeAccumulator(MemoryKind::unsharded_grad, memory), name, nullptr, to_host) {}

void Bucket::allocate(Device device) {
  if (leaf.is_defined()) return;
  const AllocationScope scope(MemoryKind::unsharded_grad, memory);
  leaf = Tensor::empty({numel}, dtype, device);
}

void Bucket::take(const Slot& slot, const Tensor& whole) {
  allocate(whole.device());
  ops::copy(leaf.narrow(0, slot.at, slot.slice.numel),
            whole.narrow(0, slot.slice.begin, slot.slice.numel));
}

void Bucket::fill_with_zeros(const Slot& slot, Device device) {
  allocate(device);
  ops::fill(leaf.narrow(0, slot.at, slot.slice.numel), 0);
}

void Bucket::cast_leaf(DType to) {
  const AllocationScope scope(MemoryKind::unsharded_grad, memory);
  leaf = recast(leaf, to);
}

BucketQueue::BucketQueue(Parameters parameters, std::function<void(std::size_t)> take,
                         std::function<void(Bucket&)> reduce)
    : parameters_(std::move(parameters)), take_(std::move(take)), reduce_(std::move(reduce)) {
  std::erase_if(parameters_, [](const auto& each) { return !each.second.requires_grad(); });
  places_.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    hooks_.push_back(parameters_[i].second.register_post_accumulate_grad_hook(
        [this, i](const Variable&) { on_gradient(i); }));
  }
}

BucketQueue::~BucketQueue() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].second.remove_post_accumulate_grad_hook(hooks_[i]);
  }
}

Bucket& BucketQueue::add(std::unique_ptr<Bucket> bucket, const std::vector<OwnedSlice>& slices) {
  for (const OwnedSlice& slice : slices) {
    bucket->slots.push_back({.slice = slice, .at = bucket->numel});
    bucket->numel += slice.numel;
  }
  for (Bucket::Slot& slot : bucket->slots) {
    places_[slot.slice.parameter].emplace_back(bucket.get(), &slot);
  }
  buckets_.push_back(std::move(bucket));
  return *buckets_.back();
}

void BucketQueue::begin_step(const optim::StepPlan& plan) {
  plan_ = plan;
  micro_step_ = 0;
  for (const auto& bucket : buckets_) {
    bucket->work = {};
    bucket->leaf = {};
    for (Bucket::Slot& slot : bucket->slots) slot.whole = {};
    bucket->micro_batches.clear();
    bucket->reductions.clear();
  }
  start_micro_step();
}

void BucketQueue::start_micro_step() {
  next_ = 0;
  for (const auto& bucket : buckets_) {
    bucket->missing = bucket->slots.size();
    for (Bucket::Slot& slot : bucket->slots) slot.is_complete = false;
  }
}

void BucketQueue::on_gradient(std::size_t index) {
  const std::string& path = parameters_[index].first;
  FSDP_CHECK(micro_step_ < plan_.micro_steps,
             "'{}' got a gradient outside begin_step() … end_micro_step()", path);
  for (const auto& [bucket, slot] : places_[index]) {
    FSDP_CHECK(!slot->is_complete, "'{}' got a second gradient in micro-step {}", path,
               micro_step_);
    slot->is_complete = true;
    --bucket->missing;
  }
  take_(index);
  // Buckets are closed in one order, whatever order backward finishes them in on this rank: the
  // order of collectives must be the same everywhere.
  while (next_ < buckets_.size() && buckets_[next_]->missing == 0) close(*buckets_[next_++]);
}

// The bucket is this micro-step's leaf from here on; at the last of a reduction it goes on its way.
void BucketQueue::close(Bucket& bucket) {
  for (Bucket::Slot& slot : bucket.slots) {
    if (!slot.is_complete) {
      bucket.fill_with_zeros(slot, parameters_[slot.slice.parameter].second.data().device());
    } else if (slot.whole.is_defined()) {
      bucket.take(slot, std::exchange(slot.whole, {}));
    }
  }
  bucket.cast_leaf(bucket.dtype);
  if (plan_.micro_steps_per_reduction > 1) {
    bucket.micro_batches.push(std::exchange(bucket.leaf, {}));
    if (!ends_reduction()) return;
    bucket.leaf = bucket.micro_batches.fold();
  }
  reduce_(bucket);
}

void BucketQueue::close_all() {
  FSDP_CHECK(micro_step_ < plan_.micro_steps,
             "this step was planned with {} micro-steps, which have all ended", plan_.micro_steps);
  while (next_ < buckets_.size()) close(*buckets_[next_++]);
}

bool BucketQueue::next_micro_step() {
  if (++micro_step_ == plan_.micro_steps) return false;
  start_micro_step();
  return true;
}

double BucketQueue::mean_factor(int ranks) const {
  FSDP_CHECK(micro_step_ == plan_.micro_steps && micro_step_ > 0,
             "finish_gradients() was called after {} of {} micro-steps", micro_step_,
             plan_.micro_steps);
  return plan_.mean_factor(ranks);
}

}  // namespace fsdp::parallel
