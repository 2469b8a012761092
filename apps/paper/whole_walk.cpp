#include "paper/whole_walk.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace fsdp::paper {

namespace {

OwnedSlices divide(const std::vector<std::int64_t>& numels, const optim::Recipe& recipe) {
  return parallel::divide(recipe.zero.partition, numels, recipe.ranks);
}

}  // namespace

std::int64_t numel_of(const OwnedSlices& slices) {
  return std::transform_reduce(slices.begin(), slices.end(), std::int64_t{0}, std::plus{},
                               [](const parallel::OwnedSlice& slice) { return slice.numel; });
}

OwnedSlices owned_slices(const std::vector<WholePart>& parts, const MemoryOptions& options) {
  std::vector<std::int64_t> numels;
  numels.reserve(parts.size());
  for (const WholePart& part : parts) numels.push_back(part.numel);
  return divide(numels, options.recipe);
}

WholeWalk::WholeWalk(const ModelShape& shape, const MemoryOptions& options,
                     const Schedule& schedule, Books& books)
    : shape_(shape),
      options_(options),
      schedule_(schedule),
      books_(books),
      formats_(options.recipe.precision, options.recipe.zero.reductions.compression),
      slices_of_part_(parts_.size()) {
  if (has_owners()) {
    owned_ = owned_slices(parts_, options);
    broadcasts_ =
        parallel::travel_groups(owned_, std::vector<DType>(parts_.size(), broadcast_dtype()),
                                options.recipe.zero.broadcast_buffer_bytes);
  }
  if (offloads_sums()) copied_.resize(static_cast<std::size_t>(recipe_.ranks));
  make_buckets();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    for (const parallel::OwnedSlice& slice : buckets_[i].slices) {
      buckets_[i].numel += slice.numel;
      slices_of_part_[slice.parameter].push_back({i, slice});
    }
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (by_segment_.size() <= parts_[i].segment) by_segment_.resize(parts_[i].segment + 1);
    by_segment_[parts_[i].segment].push_back(i);
  }
  part_of_operation_.resize(by_segment_.size());
}

// Those of DdpGradients and of Zero2Gradients: last parameters first.
void WholeWalk::make_buckets() {
  if (is_zero2()) {
    const DType sums = recipe_.precision.reduce_dtype_for(DType::float32);
    for (OwnedSlices& slices : parallel::travel_groups(
             owned_, std::vector<DType>(parts_.size(), sums), recipe_.zero.reduce_buffer_bytes)) {
      const parallel::OwnedSlice first = slices.front();
      buckets_.push_back({.slices = std::move(slices)});
      buckets_.back().is_direct = buckets_.back().slices.size() == 1 && !formats_.casts_gradients &&
                                  first.numel == parts_[first.parameter].numel;
    }
    return;
  }
  std::uint64_t nbytes = 0;  // of the last bucket
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::size_t part = is_single() ? i : parts_.size() - 1 - i;
    const auto more = static_cast<std::uint64_t>(formats_.param * parts_[part].numel);
    if (is_single() || buckets_.empty() || nbytes + more > recipe_.bucket_bytes) {
      buckets_.emplace_back();
      nbytes = 0;
    }
    nbytes += more;
    buckets_.back().slices.push_back(
        {.parameter = part, .numel = parts_[part].numel, .owner = Books::kEachRank});
  }
}

void WholeWalk::hold_parameters() {
  constexpr MemoryKind kParams = MemoryKind::unsharded_param;
  const std::int64_t copies = formats_.casts_params || divides_masters() ? formats_.param : 0;
  books_.hold(kParams, copies * shape_.whole + formats_.param * shape_.whole_without_master);
  if (!divides_masters()) return books_.hold(kParams, kFloatBytes * shape_.whole);
  hold_owned(owned_, kParams, kFloatBytes);
  if (!formats_.casts_params) return;  // what is frozen is stepped nowhere
  hold_owned(divide(shape_.whole_frozen, recipe_), kParams, kFloatBytes);
}

void WholeWalk::refresh_copies() {
  if (!formats_.casts_params || has_owners()) return;
  for (const WholePart& part : parts_) {
    books_.cast(TimePart::gradients, part.numel, kFloatBytes, formats_.param);
  }
}

// ------------------------------------------------------------------------------------ a micro-step

void WholeWalk::hold_buckets() {
  if (is_single() || is_zero2()) return;  // their gradients come one by one
  for (const Bucket& bucket : buckets_) books_.hold(kKind, formats_.param * bucket.numel);
}

void WholeWalk::begin_micro_step() {
  next_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.slices.size();
    bucket.is_held = false;
  }
  unpacked_.clear();
  for (const auto& slices : slices_of_part_) unpacked_.push_back(slices.size());
}

std::size_t WholeWalk::part_of(std::size_t segment, std::size_t place, std::string_view operation) {
  std::vector<std::size_t>& known = part_of_operation_[segment];
  if (place < known.size()) return known[place];
  FSDP_CHECK(place == known.size(), "operation {} of segment {} comes before {}", place, segment,
             known.size());
  const std::vector<std::size_t>& parts = by_segment_[segment];
  const auto found = std::ranges::find_if(
      parts, [&](std::size_t part) { return parts_[part].operation == operation; });
  return known.emplace_back(found == parts.end() ? kNoPart : *found);
}

void WholeWalk::complete(std::size_t segment, std::size_t place, std::string_view operation,
                         int m) {
  if (is_single() || segment >= by_segment_.size()) return;
  const std::size_t part = part_of(segment, place, operation);
  if (part == kNoPart) return;
  for (const auto& [index, slice] : slices_of_part_[part]) {
    Bucket& bucket = buckets_[index];
    --bucket.missing;
    if (is_copied(bucket) && recipe_.zero.contiguous_gradients) pack(slice, bucket);
  }
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) close(buckets_[next_++], m);
}

// A gradient is copied into a bucket, and freed when it is in all of its buckets.
void WholeWalk::pack(const parallel::OwnedSlice& slice, Bucket& bucket) {
  if (!std::exchange(bucket.is_held, true)) books_.hold(kKind, formats_.sum * bucket.numel);
  books_.cast(TimePart::gradients, slice.numel, formats_.param, formats_.sum);
  if (--unpacked_[slice.parameter] > 0) return;
  books_.drop(kKind, formats_.param * parts_[slice.parameter].numel);
}

// The bucket becomes this micro-step's leaf of the sums: a copy, if they have another format. At
// the last micro-step of a reduction it goes on its way, as another copy if it is compressed.
void WholeWalk::close(Bucket& bucket, int m) {
  const std::int64_t nbytes = formats_.sum * bucket.numel;
  if (is_copied(bucket)) {
    for (const parallel::OwnedSlice& slice : bucket.slices) {
      if (!recipe_.zero.contiguous_gradients) pack(slice, bucket);
    }
  } else if (formats_.casts_gradients) {
    books_.replace(kKind, formats_.param * bucket.numel, nbytes);
    books_.cast(TimePart::gradients, bucket.numel, formats_.param, formats_.sum);
  }
  if (sums_first()) {
    const int group = recipe_.micro_steps_per_reduction;
    books_.push_leaf(kKind, kKind, bucket.numel, m % group);
    if (!reduces(m)) return;
    books_.fold_leaves(kKind, bucket.numel, group);
  }
  if (is_zero2()) finish_in_flight(m);
  if (formats_.compresses) books_.replace(kKind, nbytes, formats_.wire * bucket.numel);
  const GroupShape shards = books_.group_of(0, recipe_.shards(), 1);
  if (is_zero2()) {
    const bool is_to_owner = recipe_.zero.reduce_scatter;
    bucket.end = books_.start(&WireBytes::reductions,
                              is_to_owner ? CollectiveOp::reduce : CollectiveOp::all_reduce,
                              bucket.numel, formats_.wire, shards);
    in_flight_ = &bucket;
    if (!recipe_.zero.reductions.overlap) finish_in_flight(m);
  } else if (!is_single()) {
    bucket.end = books_.start(&WireBytes::reductions, CollectiveOp::all_reduce, bucket.numel,
                              formats_.wire, shards);
    if (recipe_.replicas == 1) return;
    books_.start(&WireBytes::across, CollectiveOp::all_reduce, bucket.numel, formats_.wire,
                 books_.group_of(0, recipe_.replicas, recipe_.shards()));
  }
}

// What was reduced becomes a leaf of the sums.
void WholeWalk::finish(Bucket& bucket, int m) {
  books_.wait(TimePart::reductions, bucket.end);
  if (formats_.compresses) {
    books_.replace(kKind, formats_.wire * bucket.numel, formats_.sum * bucket.numel);
  }
  books_.push_leaf(kKind, kKind, bucket.numel, leaf_of(m));
}

// ZeRO-2: the same, on its owner; the others free it.
void WholeWalk::finish_in_flight(int m) {
  if (in_flight_ == nullptr) return;
  Bucket& bucket = *std::exchange(in_flight_, nullptr);
  const std::int64_t copy = formats_.compresses ? formats_.sum * bucket.numel : 0;
  books_.wait(TimePart::reductions, bucket.end);
  hold_sum(bucket, copy);
  books_.drop(kKind, formats_.wire * bucket.numel);
  if (offloads_sums()) return start_copy(bucket, m);
  hold_sum(bucket, -copy);
  books_.add_leaf(kKind, bucket.numel, leaf_of(m), MemorySpace::device, bucket.owner());
}

// The owner keeps what was reduced until its next bucket has been. A bucket that is not before this
// one was reduced in the micro-step (under no_sync: the reduction) before.
void WholeWalk::start_copy(Bucket& bucket, int m) {
  const std::int64_t nbytes = formats_.sum * bucket.numel;
  if (!formats_.compresses) hold_sum(bucket, nbytes);
  Bucket*& copied = copied_[static_cast<std::size_t>(bucket.owner())];
  finish_copy(bucket.owner(), leaf_of(m) - (copied < &bucket ? 0 : 1));
  copied = &bucket;
  hold_sum(bucket, nbytes, MemorySpace::host);
  if (is_mine(bucket)) bucket.end = books_.start_copy(nbytes);
}

// What was copied becomes leaf number `leaf` of the sums on the host.
void WholeWalk::finish_copy(int owner, int leaf) {
  const Bucket* bucket = std::exchange(copied_[static_cast<std::size_t>(owner)], nullptr);
  if (bucket == nullptr) return;
  const std::int64_t nbytes = formats_.sum * bucket->numel;
  hold_sum(*bucket, -nbytes);
  hold_sum(*bucket, -nbytes, MemorySpace::host);
  if (is_mine(*bucket)) books_.wait(TimePart::copies, bucket->end);
  books_.add_leaf(kKind, bucket->numel, leaf, MemorySpace::host, owner);
}

void WholeWalk::end_micro_step(int m) {
  if (is_zero2()) return finish_in_flight(m);
  for (Bucket& bucket : buckets_) {
    if (is_single()) close(bucket, m);
    if (reduces(m)) finish(bucket, m);
  }
}

}  // namespace fsdp::paper
