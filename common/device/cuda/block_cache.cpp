#include "device/cuda/block_cache.h"

#include "base/check.h"

#include <iterator>

namespace fsdp::cuda {

void BlockCache::set_free(Blocks::iterator block, bool is_free) {
  FreeSet& set = free_of(block->second.pool);
  block->second.is_free = is_free;
  if (is_free) {
    set.emplace(block->second.nbytes, block->first);
  } else {
    set.erase({block->second.nbytes, block->first});
  }
}

std::optional<BlockCache::Address> BlockCache::take(Pool pool, std::size_t nbytes) {
  const auto fit = free_of(pool).lower_bound({nbytes, 0});
  if (fit == free_of(pool).end()) return std::nullopt;
  const auto block = blocks_.find(fit->second);
  set_free(block, false);
  if (const std::size_t rest = block->second.nbytes - nbytes; rest > 0) {
    block->second.nbytes = nbytes;
    Block tail = block->second;
    tail.nbytes = rest;
    set_free(blocks_.emplace(block->first + nbytes, tail).first, true);
  }
  return block->first;
}

// Both are free, or about to be; the next one ends.
void BlockCache::merge_with_next(Blocks::iterator block) {
  const auto next = std::next(block);
  if (next == blocks_.end() || !next->second.is_free ||
      next->second.segment != block->second.segment) {
    return;
  }
  set_free(next, false);
  block->second.nbytes += next->second.nbytes;
  blocks_.erase(next);
}

void BlockCache::give_back(Address begin) {
  auto block = blocks_.find(begin);
  FSDP_CHECK(block != blocks_.end() && !block->second.is_free,
             "no block in use begins at address {}: it was freed already, or is not of this device",
             begin);
  merge_with_next(block);
  if (block != blocks_.begin()) {
    const auto before = std::prev(block);
    if (before->second.is_free && before->second.segment == block->second.segment) {
      set_free(before, false);
      before->second.nbytes += block->second.nbytes;
      blocks_.erase(block);
      block = before;
    }
  }
  set_free(block, true);
}

void BlockCache::add(Pool pool, Segment segment) {
  segments_.emplace(segment.begin, segment.nbytes);
  reserved_ += segment.nbytes;
  const Block whole{
      .nbytes = segment.nbytes, .segment = segment.begin, .pool = pool, .is_free = false};
  set_free(blocks_.emplace(segment.begin, whole).first, true);
}

std::vector<BlockCache::Segment> BlockCache::remove_unused() {
  std::vector<Segment> unused;
  for (const auto& [begin, nbytes] : segments_) {
    const auto block = blocks_.find(begin);
    if (!block->second.is_free || block->second.nbytes != nbytes) continue;
    set_free(block, false);
    blocks_.erase(block);
    unused.push_back({begin, nbytes});
    reserved_ -= nbytes;
  }
  for (const Segment& segment : unused) segments_.erase(segment.begin);
  return unused;
}

}  // namespace fsdp::cuda
