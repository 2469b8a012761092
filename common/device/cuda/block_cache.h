/// @file
/// @ingroup device
/// BlockCache: which parts of reserved memory are free, and which block a request gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace fsdp::cuda {

/// The bookkeeping of a caching allocator; it touches no memory itself.
///
///     segment   [ used | free | used |      free      ]     cut into blocks, neighbors in order
///
/// A request gets the smallest free block that holds it, and the rest stays free. A freed block
/// merges with free neighbors of its segment. Small and large requests have segments of their own:
/// small blocks that live long would otherwise keep large ones apart.
class BlockCache {
 public:
  using Address = std::uintptr_t;
  enum class Pool { small, large };
  struct Segment {
    Address begin;
    std::size_t nbytes;
  };

  /// Takes `nbytes` > 0 from the smallest free block of the pool; empty if none is large enough.
  std::optional<Address> take(Pool pool, std::size_t nbytes);
  /// Frees the block that begins at `begin`.
  void give_back(Address begin);
  /// Adds fresh memory, all of it free.
  void add(Pool pool, Segment segment);
  /// Removes the segments of which nothing is used, and returns them.
  std::vector<Segment> remove_unused();

  std::size_t reserved() const { return reserved_; }  ///< bytes of all segments
  std::size_t count() const { return blocks_.size(); }

 private:
  struct Block {
    std::size_t nbytes;
    Address segment;  // where its segment begins
    Pool pool;
    bool is_free;
  };
  using Blocks = std::map<Address, Block>;
  using FreeSet = std::set<std::pair<std::size_t, Address>>;

  FreeSet& free_of(Pool pool) { return free_[pool == Pool::small ? 0 : 1]; }
  void set_free(Blocks::iterator block, bool is_free);
  void merge_with_next(Blocks::iterator block);

  Blocks blocks_;
  FreeSet free_[2];
  std::map<Address, std::size_t> segments_;
  std::size_t reserved_ = 0;
};

}  // namespace fsdp::cuda
