#include "estimate/owned_gradients.h"

#include "estimate/whole_gradients.h"

#include <utility>

namespace fsdp::estimate {

namespace {

constexpr MemoryKind kKind = MemoryKind::unsharded_grad;

}  // namespace

std::int64_t numel_of(const OwnedSlices& slices) {
  std::int64_t numel = 0;
  for (const parallel::OwnedSlice& slice : slices) numel += slice.numel;
  return numel;
}

OwnedSlices owned_slices(const std::vector<WholePart>& parts, const MemoryOptions& options) {
  std::vector<std::int64_t> numels;
  numels.reserve(parts.size());
  for (const WholePart& part : parts) numels.push_back(part.numel);
  return parallel::divide(options.zero.partition, numels, options.world_size);
}

std::vector<OwnedSlices> reduce_groups(const std::vector<WholePart>& parts,
                                       const MemoryOptions& options) {
  const DType sums = options.mixed_precision.reduce_dtype_for(DType::float32);
  return parallel::travel_groups(owned_slices(parts, options),
                                 std::vector<DType>(parts.size(), sums),
                                 options.zero.reduce_buffer_bytes);
}

std::vector<OwnedSlices> broadcast_groups(const std::vector<WholePart>& parts,
                                          const MemoryOptions& options) {
  const DType travels = options.zero.broadcast_fp16 ? DType::float16 : DType::float32;
  return parallel::travel_groups(owned_slices(parts, options),
                                 std::vector<DType>(parts.size(), travels),
                                 options.zero.broadcast_buffer_bytes);
}

OwnedParts::OwnedParts(const std::vector<WholePart>& parts, const MemoryOptions& options,
                       Ledger& ledger)
    : rank_(options.rank), loads_(static_cast<std::size_t>(options.world_size)), ledger_(ledger) {
  for (const parallel::OwnedSlice& slice : owned_slices(parts, options)) {
    loads_[static_cast<std::size_t>(slice.owner)] += slice.numel;
  }
  const bool halves = options.zero.broadcast_fp16;
  for (const OwnedSlices& group : broadcast_groups(parts, options)) {
    const bool is_in_place = group.size() == 1 && !halves;
    buffers_.push_back(is_in_place ? 0 : numel_of(group) * (halves ? 2 : kFloatBytes));
  }
}

void OwnedParts::make_state(std::int64_t nbytes) {
  RankPeaks* ranks = ledger_.ranks();
  if (ranks == nullptr) {
    ledger_.hold(MemoryKind::optimizer, nbytes * loads_[static_cast<std::size_t>(rank_)]);
    return;
  }
  for (std::size_t rank = 0; rank < loads_.size(); ++rank) {
    ranks->add_own(static_cast<int>(rank), nbytes * loads_[rank]);
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
    : parts_(parts),
      options_(options),
      formats_(options.mixed_precision, options.zero.reductions.compression),
      ledger_(ledger),
      places_(parts.size()) {
  for (const auto& slices : reduce_groups(parts, options)) {
    const parallel::OwnedSlice& first = slices.front();
    for (const parallel::OwnedSlice& slice : slices) {
      places_[slice.parameter].buckets.push_back(buckets_.size());
    }
    buckets_.push_back({first.owner, numel_of(slices), slices});
    buckets_.back().is_direct = slices.size() == 1 && !formats_.casts_gradients &&
                                first.numel == parts[first.parameter].numel;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (by_segment_.size() <= parts[i].segment) by_segment_.resize(parts[i].segment + 1);
    by_segment_[parts[i].segment].push_back(i);
  }
}

void OwnedGradients::begin_micro_step() {
  next_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.slices.size();
    bucket.is_held = false;
  }
  for (Place& place : places_) place.unmoved = place.buckets.size();
}

// The gradient itself is in the ledger already.
void OwnedGradients::complete(std::size_t segment, std::string_view operation, int m) {
  if (segment >= by_segment_.size()) return;
  for (const std::size_t i : by_segment_[segment]) {
    if (parts_[i].operation != operation) continue;
    for (const std::size_t index : places_[i].buckets) {
      Bucket& bucket = buckets_[index];
      if (!bucket.is_direct && options_.zero.contiguous_gradients) move(i, bucket);
      --bucket.missing;
    }
    while (next_ < buckets_.size() && buckets_[next_].missing == 0) close(buckets_[next_++], m);
  }
}

// A gradient is copied into a bucket, and freed when it is in all of its buckets.
void OwnedGradients::move(std::size_t part, Bucket& bucket) {
  if (!std::exchange(bucket.is_held, true)) ledger_.hold(kKind, formats_.sum * bucket.numel);
  if (--places_[part].unmoved == 0) ledger_.drop(kKind, formats_.param * parts_[part].numel);
}

void OwnedGradients::close(Bucket& bucket, int m) {
  if (!bucket.is_direct && !options_.zero.contiguous_gradients) {
    for (const parallel::OwnedSlice& slice : bucket.slices) move(slice.parameter, bucket);
  }
  const int group = options_.micro_steps_per_reduction;
  const std::int64_t nbytes = formats_.sum * bucket.numel;
  if (group > 1) {
    push_leaf(ledger_, kKind, kKind, nbytes, m % group);
    if ((m + 1) % group != 0) return;
    fold_leaves(ledger_, kKind, nbytes, group);
  }
  finish_in_flight(m);
  if (formats_.compresses) ledger_.replace(kKind, nbytes, formats_.wire * bucket.numel);
  in_flight_ = &bucket;
  if (!options_.zero.reductions.overlap) finish_in_flight(m);
}

void OwnedGradients::finish_in_flight(int m) {
  if (in_flight_ == nullptr) return;
  const std::int64_t nbytes = formats_.sum * in_flight_->numel;
  const std::int64_t travelled = formats_.wire * in_flight_->numel;
  const bool is_counted_here = is_counted(*in_flight_);
  if (is_counted_here && formats_.compresses) hold_own(*in_flight_, nbytes);
  ledger_.drop(kKind, travelled);
  if (is_counted_here) {
    const int leaf = m / options_.micro_steps_per_reduction;
    hold_own(*in_flight_, nbytes * more_leaves(leaf) - (formats_.compresses ? nbytes : 0));
  }
  in_flight_ = nullptr;
}

void OwnedGradients::hold_own(const Bucket& bucket, std::int64_t nbytes) {
  if (ledger_.ranks() != nullptr) {
    ledger_.ranks()->add_own(bucket.owner, nbytes);
  } else {
    ledger_.hold(kKind, nbytes);
  }
}

void OwnedGradients::finish() {
  const int reductions = options_.micro_steps / options_.micro_steps_per_reduction;
  for (const Bucket& bucket : buckets_) {
    if (!is_counted(bucket)) continue;
    const std::int64_t nbytes = formats_.sum * bucket.numel;
    hold_own(bucket, -nbytes * folded_leaves(reductions));
    if (!formats_.widens_sums) continue;
    hold_own(bucket, kFloatBytes * bucket.numel);
    hold_own(bucket, -nbytes);
  }
}

void OwnedGradients::zero() {
  for (const Bucket& bucket : buckets_) {
    if (is_counted(bucket)) hold_own(bucket, -kFloatBytes * bucket.numel);
  }
}

}  // namespace fsdp::estimate
