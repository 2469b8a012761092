// The step of what every rank holds whole: means, the optimizer, and ZeRO's broadcasts.
#include "paper/whole_walk.h"

#include <utility>

namespace fsdp::paper {

void WholeWalk::move_to_host(const Bucket& bucket) {
  const std::int64_t nbytes = formats_.sum * bucket.numel;
  hold_sum(bucket, nbytes, MemorySpace::host);
  hold_sum(bucket, -nbytes);
  if (is_mine(bucket)) books_.wait(TimePart::copies, books_.start_copy(nbytes));
}

void WholeWalk::finish_gradients() {
  const int leaves = leaf_of(recipe_.micro_steps - 1) + 1;
  for (int owner = 0; owner < static_cast<int>(copied_.size()); ++owner) {
    finish_copy(owner, leaves - 1);
  }
  const MemorySpace space = means();
  for (const Bucket& bucket : buckets_) {
    books_.fold_leaves(kKind, bucket.numel, leaves, sums(), bucket.owner());
    if (space != sums()) move_to_host(bucket);
    if (formats_.widens_sums) {
      books_.replace(kKind, formats_.sum * bucket.numel, kFloatBytes * bucket.numel, space,
                     bucket.owner());
    }
    if (!is_mine(bucket)) continue;
    if (!is_zero2()) {
      books_.divide_mean(bucket.numel, space);
      continue;
    }
    for (const parallel::OwnedSlice& slice : bucket.slices) books_.divide_mean(slice.numel, space);
  }
  if (means() != steps()) copy_means();
}

// ZeRO-1: of whole means, what the rank owns.
void WholeWalk::copy_means() {
  hold_owned(owned_, kKind, kFloatBytes);
  std::int64_t end = 0;
  for (const parallel::OwnedSlice& slice : owned_) {
    if (slice.owner == options_.rank) end = books_.start_copy(kFloatBytes * slice.numel);
  }
  books_.wait(TimePart::copies, end);
}

// DDP's ranks hold the same, and each counts every W-th parameter.
void WholeWalk::add_squares() {
  if (has_owners()) {
    for (const parallel::OwnedSlice& slice : owned_) {
      if (slice.owner == options_.rank) books_.square(slice.numel, steps());
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
      if (slice.owner == options_.rank) books_.update(slice.numel, is_first, steps());
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
  const std::vector<std::int64_t> loads = parallel::loads_of(slices, recipe_.ranks);
  for (int rank = 0; rank < recipe_.ranks; ++rank) {
    books_.hold_own(rank, kind, nbytes * loads[static_cast<std::size_t>(rank)], steps());
  }
}

// What the owner broadcasts, in one piece on the device. Offloaded, it is packed on the host.
std::int64_t WholeWalk::pack_updated(const OwnedSlices& slices) {
  const auto element = static_cast<std::int64_t>(size_of(broadcast_dtype()));
  for (const parallel::OwnedSlice& slice : slices) {
    if (is_packed(slices)) break;
    books_.cast(TimePart::optimizer, slice.numel, kFloatBytes, element, steps());
    if (!is_offloaded() || !recipe_.zero.broadcast_fp16) continue;
    books_.cast(TimePart::optimizer, slice.numel, element, kFloatBytes, steps());
  }
  return is_offloaded() ? books_.start_copy(element * numel_of(slices)) : 0;
}

void WholeWalk::broadcast() {
  const auto element = static_cast<std::int64_t>(size_of(broadcast_dtype()));
  const auto cast = [&](const OwnedSlices& slices, std::int64_t from, std::int64_t to) {
    for (const parallel::OwnedSlice& slice : slices) {
      books_.cast(TimePart::optimizer, slice.numel, from, to);
    }
  };
  const auto buffer_of = [&](const OwnedSlices& slices) {
    return is_in_place(slices) ? 0 : element * numel_of(slices);
  };
  // What the owner packs on its host.
  const auto stage = [&](const OwnedSlices& slices, std::int64_t element_nbytes) {
    if (!is_offloaded() || is_packed(slices)) return;
    books_.hold_own(slices.front().owner, MemoryKind::temp, element_nbytes * numel_of(slices),
                    MemorySpace::host);
  };
  const OwnedSlices* before = nullptr;
  std::int64_t end_before = 0;
  const auto finish = [&] {
    if (before == nullptr) return;
    books_.wait(TimePart::updates, end_before);
    const bool is_mine = before->front().owner == options_.rank;
    const bool is_rounded = is_mine && recipe_.zero.broadcast_fp16;
    if (is_rounded && divides_masters() && !is_offloaded()) cast(*before, element, kFloatBytes);
    if (!is_in_place(*before) && (!is_mine || is_rounded || divides_masters())) {
      cast(*before, element, formats_.param);
    }
    books_.drop(MemoryKind::temp, buffer_of(*before));
    stage(*before, -element);
  };
  const GroupShape world = books_.group_of(0, recipe_.ranks, 1);
  for (const OwnedSlices& slices : broadcasts_) {
    books_.hold(MemoryKind::temp, buffer_of(slices));
    const bool is_mine = slices.front().owner == options_.rank;
    stage(slices, element);
    const std::int64_t ready = is_mine ? pack_updated(slices) : 0;
    const std::int64_t end = books_.start(&WireBytes::broadcasts, CollectiveOp::broadcast,
                                          numel_of(slices), element, world, ready);
    finish();
    before = &slices;
    end_before = end;
  }
  finish();
}

void WholeWalk::zero_grad() {
  for (const Bucket& bucket : buckets_) hold_sum(bucket, -kFloatBytes * bucket.numel, means());
  if (means() != steps()) hold_owned(owned_, kKind, -kFloatBytes);
}

}  // namespace fsdp::paper
