#include "estimate/whole_timing.h"

#include "base/check.h"
#include "estimate/owned_gradients.h"
#include "estimate/whole_gradients.h"

#include <algorithm>
#include <utility>

namespace fsdp::estimate {

WholeTiming::WholeTiming(const ModelShape& shape, const MemoryOptions& options,
                         const CostModel& machine, const KernelTimes& kernels)
    : StepTiming(shape, options, machine, kernels),
      world_(group_of(0, options.world_size, 1)),
      completions_(shape.segments.size()),
      slices_(shape.whole_parts.size()) {
  const std::vector<WholePart>& parts = shape.whole_parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < shape.segments.size(); ++i) {
    std::size_t end = begin;
    while (end < parts.size() && parts[end].segment == i) ++end;
    for (const Completion& each : times_of(i).completions) {
      std::size_t part = begin;
      while (part < end && parts[part].operation != each.operation) ++part;
      if (part < end) completions_[i].push_back({each.at, part});
    }
    FSDP_CHECK(completions_[i].size() == end - begin, "segment {}: {} of {} gradients complete",
               shape.segments[i], completions_[i].size(), end - begin);
    begin = end;
  }
  if (has_owners()) {
    for (const parallel::OwnedSlice& slice : owned_slices(parts, options)) {
      if (slice.owner == options.rank) pieces_.push_back(slice.numel);
    }
    broadcasts_ = broadcast_groups(parts, options);
  } else {
    pieces_.reserve(parts.size());
    for (const WholePart& part : parts) pieces_.push_back(part.numel);
  }
  is_zero2() ? make_owned_buckets() : make_buckets();
}

void WholeTiming::make_buckets() {
  const std::vector<WholePart>& parts = shape_.whole_parts;
  if (is_single()) {  // it has no buckets: its parameters come one by one, in their order
    for (const WholePart& part : parts) buckets_.push_back({.numel = part.numel, .size = 1});
    return;
  }
  std::size_t part = parts.size();
  for (const std::vector<WholePart>& together : ddp_buckets(parts, options_)) {
    for (const WholePart& each : together) slices_[--part].push_back({buckets_.size(), each.numel});
    buckets_.push_back({.numel = numel_of(together), .size = together.size()});
  }
}

void WholeTiming::make_owned_buckets() {
  for (const OwnedSlices& group : reduce_groups(shape_.whole_parts, options_)) {
    Bucket bucket{.size = group.size(), .owner = group.front().owner};
    bucket.is_direct = group.size() == 1 && !formats_.casts_gradients &&
                       group.front().numel == shape_.whole_parts[group.front().parameter].numel;
    for (const parallel::OwnedSlice& slice : group) {
      bucket.numel += slice.numel;
      bucket.slices.push_back(slice.numel);
      slices_[slice.parameter].push_back({buckets_.size(), slice.numel});
    }
    buckets_.push_back(std::move(bucket));
  }
}

StepTime WholeTiming::next_step() {
  if (has_state_ && formats_.casts_params) {  // what the optimizer has changed
    for (const WholePart& part : shape_.whole_parts) {
      copy(TimePart::gradients, part.numel, kFloatBytes, formats_.param);
    }
  }
  for (int m = 0; m < options_.micro_steps; ++m) {
    run_micro_step(m, [&] { micro_step(m); });
  }
  finish_gradients();
  if (options_.clips) clip();
  const bool is_first = !std::exchange(has_state_, true);
  for (const std::int64_t numel : pieces_) update(numel, is_first);
  if (has_owners()) broadcast();
  return clock_.take();
}

void WholeTiming::micro_step(int m) {
  next_ = 0;
  leaf_ = m / group();
  for (Bucket& bucket : buckets_) bucket.missing = bucket.size;
  const std::size_t segments = shape_.segments.size();
  for (std::size_t i = 0; i < segments; ++i) {
    clock_.compute_for(TimePart::forward, times_of(i).forward);
  }
  clock_.compute_for(TimePart::forward, kernels_.loss.forward);
  clock_.compute_for(TimePart::backward, kernels_.loss.backward);
  for (std::size_t i = segments; i-- > 0;) {
    if (is_checkpointed(i)) clock_.compute_for(TimePart::recomputation, times_of(i).forward);
    std::int64_t done = 0;
    for (const Place& place : completions_[i]) {
      clock_.compute_for(TimePart::backward, place.at - std::exchange(done, place.at));
      complete(place.part, m);
    }
    clock_.compute_for(TimePart::backward, times_of(i).backward - done);
  }
  end_micro_step(m);
}

void WholeTiming::complete(std::size_t part, int m) {
  if (is_single()) return;
  for (const Slice& slice : slices_[part]) {
    Bucket& bucket = buckets_[slice.bucket];
    if (is_zero2() && !bucket.is_direct) {
      copy(TimePart::gradients, slice.numel, formats_.param, formats_.sum);
    }
    --bucket.missing;
  }
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) close(buckets_[next_++], m);
}

// The bucket is this micro-step's leaf from here on; at the last of a reduction it goes on its way.
void WholeTiming::close(Bucket& bucket, int m) {
  if (!is_zero2() && formats_.casts_gradients) {
    copy(TimePart::gradients, bucket.numel, formats_.param, formats_.sum);
  }
  if (group() > 1) {
    add(bucket.numel, additions_of_push(m % group()));
    if ((m + 1) % group() != 0) return;
    add(bucket.numel, additions_of_fold(group()));
  }
  const std::int64_t nbytes = formats_.sum * bucket.numel;
  if (is_single()) return;
  if (!is_zero2()) {
    bucket.end = clock_.start_collective(world_, 2 * nbytes * (world_.size - 1) / world_.size);
    return;
  }
  finish_in_flight();
  bucket.end = clock_.start_collective(world_, one_way(nbytes));
  in_flight_ = &bucket;
}

void WholeTiming::finish_in_flight() {
  if (in_flight_ == nullptr) return;
  const Bucket& bucket = *std::exchange(in_flight_, nullptr);
  clock_.wait(TimePart::reductions, bucket.end);
  if (is_mine(bucket)) add(bucket.numel, additions_of_push(leaf_));
}

void WholeTiming::end_micro_step(int m) {
  if (is_zero2()) return finish_in_flight();
  if ((m + 1) % group() != 0) return;
  for (Bucket& bucket : buckets_) {
    if (is_single()) {
      close(bucket, m);
    } else {
      clock_.wait(TimePart::reductions, bucket.end);
    }
    add(bucket.numel, additions_of_push(leaf_));
  }
}

// ---------------------------------------------------------------------------------------- the step

void WholeTiming::divide_mean(std::int64_t numel) {
  if (formats_.widens_sums) copy(TimePart::gradients, numel, formats_.sum, kFloatBytes);
  if (options_.world_size * options_.micro_steps != 1) scale(numel);
}

void WholeTiming::finish_gradients() {
  const int leaves = options_.micro_steps / group();
  for (const Bucket& bucket : buckets_) {
    if (is_zero2() && !is_mine(bucket)) continue;
    add(bucket.numel, additions_of_fold(leaves));
    if (!is_zero2()) divide_mean(bucket.numel);
    for (const std::int64_t numel : bucket.slices) divide_mean(numel);
  }
}

void WholeTiming::clip() {
  // DDP's ranks hold the same, and each counts every W-th piece.
  const bool is_shared = !is_single() && !has_owners();
  const std::size_t first = is_shared ? static_cast<std::size_t>(options_.rank) : 0;
  const std::size_t stride = is_shared ? static_cast<std::size_t>(options_.world_size) : 1;
  for (std::size_t i = first; i < pieces_.size(); i += stride) square(pieces_[i]);
  if (!is_single()) sum_counters(world_);
}

// Two at a time: while one travels, the next one is packed.
void WholeTiming::broadcast() {
  const bool halves = options_.zero.broadcast_fp16;
  const std::int64_t element = halves ? 2 : kFloatBytes;
  struct Travel {
    const std::vector<parallel::OwnedSlice>* slices = nullptr;
    std::int64_t end = 0;
  };
  const auto copies = [&](const std::vector<parallel::OwnedSlice>& slices) {
    for (const parallel::OwnedSlice& slice : slices) {
      copy(TimePart::optimizer, slice.numel, kFloatBytes, element);
    }
  };
  const auto is_in_place = [&](const auto& slices) { return slices.size() == 1 && !halves; };
  const auto finish = [&](const Travel& travel) {
    if (travel.slices == nullptr) return;
    clock_.wait(TimePart::updates, travel.end);
    const bool is_mine = travel.slices->front().owner == options_.rank;
    if (!is_in_place(*travel.slices) && (!is_mine || halves)) copies(*travel.slices);
  };
  Travel before;
  for (const auto& slices : broadcasts_) {
    if (!is_in_place(slices) && slices.front().owner == options_.rank) copies(slices);
    std::int64_t numel = 0;
    for (const parallel::OwnedSlice& slice : slices) numel += slice.numel;
    Travel now{&slices, clock_.start_collective(world_, one_way(element * numel))};
    finish(std::exchange(before, now));
  }
  finish(before);
}

}  // namespace fsdp::estimate
