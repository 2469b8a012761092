/// @file
/// How much a rank's thread takes from the heap, that is, outside the memory tracker.
#pragma once

#include <cstddef>

namespace fsdp::graded {

/// Watches operator new on this thread while it lives. (The library's tensors do not come from
/// there.) One at a time on a thread.
class HeapWatch {
 public:
  HeapWatch();
  ~HeapWatch();
  HeapWatch(const HeapWatch&) = delete;
  HeapWatch& operator=(const HeapWatch&) = delete;

  std::size_t largest() const;  ///< the largest block asked for, in bytes
  std::size_t held() const;     ///< the most that was held at once, of what was taken meanwhile
  /// False in builds where the heap cannot be watched (sanitizers have their own).
  static bool works();
};

}  // namespace fsdp::graded
