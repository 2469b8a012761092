#include "paper/whole_walk.h"

#include <functional>
#include <numeric>
#include <utility>

namespace fsdp::paper {

namespace {

constexpr MemoryKind kKind = MemoryKind::unsharded_grad;

DType read_dtype(const optim::Recipe& recipe) {
  return recipe.precision.param_dtype_for(DType::float32);
}

/// The dtype in which the owner's slices are broadcast.
DType broadcast_dtype(const optim::Recipe& recipe) {
  return recipe.zero.broadcast_fp16 ? DType::float16 : read_dtype(recipe);
}

/// One that is broadcast as it lies in its parameter needs no buffer.
bool is_in_place(const OwnedSlices& slices, const optim::Recipe& recipe) {
  return slices.size() == 1 && broadcast_dtype(recipe) == read_dtype(recipe);
}

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

WholeWalk::WholeWalk(const std::vector<WholePart>& parts, const MemoryOptions& options,
                     const Schedule& schedule, Books& books)
    : parts_(parts),
      options_(options),
      schedule_(schedule),
      books_(books),
      formats_(options.recipe.precision, options.recipe.zero.reductions.compression),
      buckets_of_part_(parts.size()) {
  if (has_owners()) {
    owned_ = owned_slices(parts, options);
    broadcasts_ =
        parallel::travel_groups(owned_, std::vector<DType>(parts.size(), broadcast_dtype(recipe_)),
                                options.recipe.zero.broadcast_buffer_bytes);
  }
  make_buckets();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    for (const parallel::OwnedSlice& slice : buckets_[i].slices) {
      buckets_[i].numel += slice.numel;
      buckets_of_part_[slice.parameter].push_back(i);
    }
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (by_segment_.size() <= parts[i].segment) by_segment_.resize(parts[i].segment + 1);
    by_segment_[parts[i].segment].push_back(i);
  }
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
  std::size_t nbytes = 0;  // of the last bucket
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::size_t part = is_single() ? i : parts_.size() - 1 - i;
    const auto more = static_cast<std::size_t>(formats_.param * parts_[part].numel);
    if (is_single() || buckets_.empty() || nbytes + more > recipe_.bucket_bytes) {
      buckets_.emplace_back();
      nbytes = 0;
    }
    nbytes += more;
    buckets_.back().slices.push_back({.parameter = part, .numel = parts_[part].numel});
  }
}

void WholeWalk::hold_parameters(const ModelShape& shape) {
  constexpr MemoryKind kParams = MemoryKind::unsharded_param;
  const std::int64_t copies = formats_.casts_params ? formats_.param : 0;
  books_.hold(kParams, copies * shape.whole + formats_.param * shape.whole_without_master);
  if (!divides_masters()) return books_.hold(kParams, kFloatBytes * shape.whole);
  hold_owned(owned_, kParams, kFloatBytes);
  hold_owned(divide(shape.whole_frozen, recipe_), kParams, kFloatBytes);
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
  for (const auto& buckets : buckets_of_part_) unpacked_.push_back(buckets.size());
}

void WholeWalk::complete(std::size_t segment, std::string_view operation, int m) {
  if (is_single() || segment >= by_segment_.size()) return;
  for (const std::size_t part : by_segment_[segment]) {
    if (parts_[part].operation != operation) continue;
    for (const std::size_t index : buckets_of_part_[part]) {
      Bucket& bucket = buckets_[index];
      --bucket.missing;
      if (!is_packed(bucket) || !recipe_.zero.contiguous_gradients) continue;
      for (const parallel::OwnedSlice& slice : bucket.slices) {
        if (slice.parameter == part) pack(slice, bucket);
      }
    }
    while (next_ < buckets_.size() && buckets_[next_].missing == 0) close(buckets_[next_++], m);
  }
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
  if (is_packed(bucket)) {
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
  const Bucket& bucket = *std::exchange(in_flight_, nullptr);
  const std::int64_t nbytes = formats_.sum * bucket.numel;
  const int additions = additions_of_push(leaf_of(m));
  books_.wait(TimePart::reductions, bucket.end);
  if (formats_.compresses) hold_sum(bucket, nbytes);
  books_.drop(kKind, formats_.wire * bucket.numel);
  hold_sum(bucket, nbytes * (1 - additions) - (formats_.compresses ? nbytes : 0));
  if (is_mine(bucket)) books_.add(bucket.numel, additions);
}

void WholeWalk::end_micro_step(int m) {
  if (is_zero2()) return finish_in_flight(m);
  for (Bucket& bucket : buckets_) {
    if (is_single()) close(bucket, m);
    if (reduces(m)) finish(bucket, m);
  }
}

// ---------------------------------------------------------------------------------------- the step

void WholeWalk::divide_mean(std::int64_t numel) {
  if (formats_.widens_sums) books_.cast(TimePart::gradients, numel, formats_.sum, kFloatBytes);
  if (recipe_.ranks * recipe_.micro_steps != 1) books_.scale(numel);
}

void WholeWalk::hold_sum(const Bucket& bucket, std::int64_t nbytes) {
  if (is_zero2()) return books_.hold_own(bucket.owner(), kKind, nbytes);
  books_.hold(kKind, nbytes);
}

void WholeWalk::finish_gradients() {
  const int leaves = leaf_of(recipe_.micro_steps - 1) + 1;
  for (const Bucket& bucket : buckets_) {
    const std::int64_t nbytes = formats_.sum * bucket.numel;
    hold_sum(bucket, -nbytes * additions_of_fold(leaves));
    if (formats_.widens_sums) {
      hold_sum(bucket, kFloatBytes * bucket.numel);
      hold_sum(bucket, -nbytes);
    }
    if (!is_mine(bucket)) continue;
    books_.add(bucket.numel, additions_of_fold(leaves));
    if (!is_zero2()) {
      divide_mean(bucket.numel);
      continue;
    }
    for (const parallel::OwnedSlice& slice : bucket.slices) divide_mean(slice.numel);
  }
}

// DDP's ranks hold the same, and each counts every W-th parameter.
void WholeWalk::add_squares() {
  if (has_owners()) {
    for (const parallel::OwnedSlice& slice : owned_) {
      if (slice.owner == options_.rank) books_.square(slice.numel);
    }
    return;
  }
  const auto stride = static_cast<std::size_t>(recipe_.ranks);
  for (auto i = static_cast<std::size_t>(options_.rank); i < parts_.size(); i += stride) {
    books_.square(parts_[i].numel);
  }
}

void WholeWalk::update(bool is_first) {
  if (is_first) hold_state(kFloatBytes * recipe_.optimizer.states());
  if (has_owners()) {
    for (const parallel::OwnedSlice& slice : owned_) {
      if (slice.owner == options_.rank) books_.update(slice.numel, is_first);
    }
    return;
  }
  for (const WholePart& part : parts_) books_.update(part.numel, is_first);
}

void WholeWalk::hold_state(std::int64_t nbytes) {
  if (has_owners()) return hold_owned(owned_, MemoryKind::optimizer, nbytes);
  for (const WholePart& part : parts_) books_.hold(MemoryKind::optimizer, nbytes * part.numel);
}

void WholeWalk::hold_owned(const OwnedSlices& slices, MemoryKind kind, std::int64_t nbytes) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(recipe_.ranks));
  for (const parallel::OwnedSlice& slice : slices) {
    loads[static_cast<std::size_t>(slice.owner)] += slice.numel;
  }
  for (int rank = 0; rank < recipe_.ranks; ++rank) {
    books_.hold_own(rank, kind, nbytes * loads[static_cast<std::size_t>(rank)]);
  }
}

void WholeWalk::broadcast() {
  const auto element = static_cast<std::int64_t>(size_of(broadcast_dtype(recipe_)));
  const auto cast = [&](const OwnedSlices& slices, std::int64_t from, std::int64_t to) {
    for (const parallel::OwnedSlice& slice : slices) {
      books_.cast(TimePart::optimizer, slice.numel, from, to);
    }
  };
  const auto buffer_of = [&](const OwnedSlices& slices) {
    return is_in_place(slices, recipe_) ? 0 : element * numel_of(slices);
  };
  const OwnedSlices* before = nullptr;
  std::int64_t end_before = 0;
  const auto finish = [&] {
    if (before == nullptr) return;
    books_.wait(TimePart::updates, end_before);
    const bool is_mine = before->front().owner == options_.rank;
    const bool is_rounded = is_mine && recipe_.zero.broadcast_fp16;
    if (is_rounded && divides_masters()) cast(*before, element, kFloatBytes);
    if (!is_in_place(*before, recipe_) && (!is_mine || is_rounded || divides_masters())) {
      cast(*before, element, formats_.param);
    }
    books_.drop(MemoryKind::temp, buffer_of(*before));
  };
  const GroupShape world = books_.group_of(0, recipe_.ranks, 1);
  for (const OwnedSlices& slices : broadcasts_) {
    books_.hold(MemoryKind::temp, buffer_of(slices));
    const bool is_mine = slices.front().owner == options_.rank;
    if (is_mine && (divides_masters() || !is_in_place(slices, recipe_))) {
      cast(slices, kFloatBytes, element);
    }
    const std::int64_t end = books_.start(&WireBytes::broadcasts, CollectiveOp::broadcast,
                                          numel_of(slices), element, world);
    finish();
    before = &slices;
    end_before = end;
  }
  finish();
}

void WholeWalk::zero_grad() {
  for (const Bucket& bucket : buckets_) hold_sum(bucket, -kFloatBytes * bucket.numel);
}

}  // namespace fsdp::paper
