/// @file
/// A thread of a block: a stack of its own that can be left and taken up again. Internal.
#pragma once

#include <cstddef>
#include <functional>

namespace cuda_on_host {

/// Starts at `entry` on the first resume(). It goes on until leave(), which returns to the caller
/// of resume(). A fiber that is not resumed again is left as it is: what is on its stack is not
/// destroyed, so nothing there may own anything.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  /// Ready to start over.
  void start(std::function<void()> entry);
  void resume();
  void leave();
  /// The last leave(), after which there is no resume().
  [[noreturn]] void leave_forever();
  bool on_stack(const void* address) const;

 private:
  static void begin(void* fiber);
  void forget_frames();
  std::function<void()> entry_;
  void* top_ = nullptr;  // of its stack, and of its caller's
  void* caller_ = nullptr;
  bool is_midway_ = false;  // started, and not ended
  char* stack_;
  // What the address sanitizer has to know of both stacks.
  void* own_frames_ = nullptr;
  void* caller_frames_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_nbytes_ = 0;
};

}  // namespace cuda_on_host
