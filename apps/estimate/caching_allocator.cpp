#include "estimate/caching_allocator.h"

#include <algorithm>

namespace fsdp::estimate {
namespace {

// The constants of PyTorch's allocator, by their names there.
constexpr std::int64_t kMinBlockSize = 512;
constexpr std::int64_t kSmallSize = 1 << 20;
constexpr std::int64_t kSmallBuffer = 2 << 20;
constexpr std::int64_t kLargeBuffer = 20 << 20;
constexpr std::int64_t kMinLargeAlloc = 10 << 20;
constexpr std::int64_t kRoundLarge = 2 << 20;

std::int64_t rounded(std::int64_t nbytes, std::int64_t unit) {
  return std::max((nbytes + unit - 1) / unit, std::int64_t{1}) * unit;
}

std::int64_t segment_size(std::int64_t nbytes) {
  if (nbytes <= kSmallSize) return kSmallBuffer;
  return nbytes < kMinLargeAlloc ? kLargeBuffer : rounded(nbytes, kRoundLarge);
}

}  // namespace

CachingAllocator::Handle CachingAllocator::allocate(int stream, std::int64_t nbytes) {
  const std::int64_t size = rounded(nbytes, kMinBlockSize);
  const bool is_small = size <= kSmallSize;
  const int pool = 2 * stream + (is_small ? 1 : 0);
  std::set<Handle, Smaller>& free = free_[pool];
  const auto found =
      std::ranges::find_if(free, [&](const Handle& each) { return each->nbytes >= size; });
  const auto block = found == free.end() ? take_segment(pool, size) : *found;
  if (found != free.end()) free.erase(found);
  block->is_free = false;
  const std::int64_t rest = block->nbytes - size;
  if (rest >= (is_small ? kMinBlockSize : kSmallSize + 1)) split(block, size);
  return block;
}

CachingAllocator::Handle CachingAllocator::take_segment(int pool, std::int64_t nbytes) {
  const std::int64_t size = segment_size(nbytes);
  const std::int64_t address = reserved_;
  reserved_ += size;
  return blocks_.insert(blocks_.end(), {pool, address, size, true, blocks_.end(), blocks_.end()});
}

void CachingAllocator::split(Handle block, std::int64_t nbytes) {
  const auto rest = blocks_.insert(
      blocks_.end(),
      {block->pool, block->address + nbytes, block->nbytes - nbytes, true, block, block->after});
  if (block->after != blocks_.end()) block->after->before = rest;
  block->after = rest;
  block->nbytes = nbytes;
  free_[block->pool].insert(rest);
}

void CachingAllocator::merge(Handle block, Handle next) {
  block->nbytes += next->nbytes;
  block->after = next->after;
  if (next->after != blocks_.end()) next->after->before = block;
  blocks_.erase(next);
}

void CachingAllocator::free(Handle block) {
  std::set<Handle, Smaller>& free = free_[block->pool];
  block->is_free = true;
  if (const Handle next = block->after; next != blocks_.end() && next->is_free) {
    free.erase(next);
    merge(block, next);
  }
  if (const Handle before = block->before; before != blocks_.end() && before->is_free) {
    free.erase(before);
    merge(before, block);
    block = before;
  }
  free.insert(block);
}

}  // namespace fsdp::estimate
