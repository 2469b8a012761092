#include "estimate/owned_gradients.h"

#include "estimate/whole_gradients.h"

#include <utility>

namespace fsdp::estimate {

namespace {

constexpr MemoryKind kKind = MemoryKind::unsharded_grad;

std::vector<parallel::OwnedSlice> slices_of(const std::vector<WholePart>& parts,
                                            const MemoryOptions& options) {
  std::vector<std::int64_t> numels;
  numels.reserve(parts.size());
  for (const WholePart& part : parts) numels.push_back(part.numel);
  return parallel::divide(options.zero.partition, numels, options.world_size);
}

std::int64_t numel_of(const std::vector<parallel::OwnedSlice>& slices) {
  std::int64_t numel = 0;
  for (const parallel::OwnedSlice& slice : slices) numel += slice.numel;
  return numel;
}

}  // namespace

OwnedParts::OwnedParts(const std::vector<WholePart>& parts, const MemoryOptions& options,
                       Ledger& ledger)
    : ledger_(ledger) {
  const auto slices = slices_of(parts, options);
  load_ = parallel::load_of(slices, options.rank);
  const bool halves = options.zero.broadcast_fp16;
  const std::vector<DType> dtypes(parts.size(), halves ? DType::float16 : DType::float32);
  for (const auto& group :
       parallel::travel_groups(slices, dtypes, options.zero.broadcast_buffer_bytes)) {
    const bool is_in_place = group.size() == 1 && !halves;
    buffers_.push_back(is_in_place ? 0 : numel_of(group) * (halves ? 2 : kFloatBytes));
  }
}

void OwnedParts::broadcast() {
  std::int64_t before = 0;
  for (const std::int64_t buffer : buffers_) {
    ledger_.hold(MemoryKind::temp, buffer);
    ledger_.drop(MemoryKind::temp, std::exchange(before, buffer));
  }
  ledger_.drop(MemoryKind::temp, before);
}

OwnedGradients::OwnedGradients(const std::vector<WholePart>& parts, const MemoryOptions& options,
                               Ledger& ledger)
    : parts_(parts), options_(options), formats_(options.mixed_precision), ledger_(ledger) {
  const DType sums = options.mixed_precision.reduce_dtype_for(DType::float32);
  const std::vector<DType> dtypes(parts.size(), sums);
  for (const auto& slices : parallel::travel_groups(slices_of(parts, options), dtypes,
                                                    options.zero.reduce_buffer_bytes)) {
    const parallel::OwnedSlice& first = slices.front();
    buckets_.push_back({first.owner, numel_of(slices), slices});
    buckets_.back().is_direct = slices.size() == 1 && !formats_.casts_gradients &&
                                first.numel == parts[first.parameter].numel;
  }
}

void OwnedGradients::begin_micro_step() {
  next_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.slices.size();
    bucket.is_held = false;
  }
}

// The gradient itself is in the ledger already.
void OwnedGradients::complete(std::size_t segment, std::string_view operation, int m) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].segment != segment || parts_[i].operation != operation) continue;
    bool is_moved = true;
    for (Bucket& bucket : buckets_) {
      for (const parallel::OwnedSlice& slice : bucket.slices) {
        if (slice.parameter != i) continue;
        if (bucket.is_direct) is_moved = false;
        if (!bucket.is_direct && !std::exchange(bucket.is_held, true)) {
          ledger_.hold(kKind, formats_.sum * bucket.numel);
        }
        --bucket.missing;
      }
    }
    if (is_moved) ledger_.drop(kKind, formats_.param * parts_[i].numel);
    while (next_ < buckets_.size() && buckets_[next_].missing == 0) close(buckets_[next_++], m);
  }
}

void OwnedGradients::close(Bucket& bucket, int m) {
  const int group = options_.micro_steps_per_reduction;
  const std::int64_t nbytes = formats_.sum * bucket.numel;
  if (group > 1) {
    push_leaf(ledger_, kKind, kKind, nbytes, m % group);
    if ((m + 1) % group != 0) return;
    fold_leaves(ledger_, kKind, nbytes, group);
  }
  finish_in_flight(m);
  in_flight_ = &bucket;
}

void OwnedGradients::finish_in_flight(int m) {
  if (in_flight_ == nullptr) return;
  const std::int64_t nbytes = formats_.sum * in_flight_->numel;
  if (is_mine(*in_flight_)) {
    push_leaf(ledger_, kKind, kKind, nbytes, m / options_.micro_steps_per_reduction);
  } else {
    ledger_.drop(kKind, nbytes);
  }
  in_flight_ = nullptr;
}

void OwnedGradients::finish() {
  const int reductions = options_.micro_steps / options_.micro_steps_per_reduction;
  for (const Bucket& bucket : buckets_) {
    if (!is_mine(bucket)) continue;
    fold_leaves(ledger_, kKind, formats_.sum * bucket.numel, reductions);
    if (!formats_.widens_sums) continue;
    ledger_.hold(kKind, kFloatBytes * bucket.numel);
    ledger_.drop(kKind, formats_.sum * bucket.numel);
  }
}

void OwnedGradients::zero() {
  for (const Bucket& bucket : buckets_) {
    if (is_mine(bucket)) ledger_.drop(kKind, kFloatBytes * bucket.numel);
  }
}

}  // namespace fsdp::estimate
