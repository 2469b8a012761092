/// @file
/// @ingroup estimate
/// CachingAllocator: what PyTorch's allocator takes from a card for a series of requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <utility>

namespace fsdp::estimate {

/// PyTorch's allocator on paper (c10/cuda/CUDACachingAllocator.cpp, its default settings). It takes
/// segments from the card and gives blocks of them. What is freed stays in its segment, and a
/// request gets the smallest free block that is large enough, of equal ones the first in memory.
/// Blocks of small requests and of large ones are in different segments, and so are those of
/// different streams.
class CachingAllocator {
  struct Block {
    int pool;
    std::int64_t address;  // segments lie in the order in which they were taken
    std::int64_t nbytes;
    bool is_free;
    std::list<Block>::iterator before, after;  // of its segment; end(): none
  };

 public:
  using Handle = std::list<Block>::iterator;

  /// @param stream on which the tensor is made
  Handle allocate(int stream, std::int64_t nbytes);
  void free(Handle block);
  /// Bytes of all segments, which are never given back.
  std::int64_t reserved() const { return reserved_; }

 private:
  struct Smaller {
    bool operator()(const Handle& a, const Handle& b) const {
      return std::pair(a->nbytes, a->address) < std::pair(b->nbytes, b->address);
    }
  };
  Handle take_segment(int pool, std::int64_t nbytes);
  void split(Handle block, std::int64_t nbytes);
  void merge(Handle block, Handle next);

  std::list<Block> blocks_;
  std::map<int, std::set<Handle, Smaller>> free_;  // by pool
  std::int64_t reserved_ = 0;
};

}  // namespace fsdp::estimate
