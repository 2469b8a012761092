/// @file
/// @ingroup device
/// FreeBlocks: the free parts of an address range.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace fsdp {

/// The free blocks of an allocator, in address order. First fit: a request gets the lowest address
/// at which it fits. So a program that repeats a sequence of requests gets the same addresses, and
/// used blocks stay packed at the low end.
///
/// A block's class is the power of two below its size. All blocks of a higher class fit, so only
/// one class must be searched: a request costs O(log n), and rarely more.
class FreeBlocks {
 public:
  using Address = std::uintptr_t;

  /// Takes `nbytes` > 0 from the lowest free block that is large enough; empty if none is.
  std::optional<Address> take(std::size_t nbytes);
  /// Frees [begin, begin + nbytes) and merges it with the free blocks it touches.
  void add(Address begin, std::size_t nbytes);

  std::size_t count() const { return by_address_.size(); }
  std::size_t total() const { return total_; }

 private:
  using Entry = std::pair<Address, std::size_t>;  // begin, bytes
  static constexpr int kClasses = 64;

  std::optional<Entry> lowest_fit(std::size_t nbytes) const;
  void insert(Address begin, std::size_t nbytes);
  void erase(Address begin, std::size_t nbytes);

  std::map<Address, std::size_t> by_address_;
  std::array<std::set<Entry>, kClasses> by_class_;
  std::uint64_t used_classes_ = 0;  // bit c: by_class_[c] is not empty
  std::size_t total_ = 0;
};

}  // namespace fsdp
