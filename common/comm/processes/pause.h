/// @file
/// @ingroup comm
/// How a thread waits for messages that only looking for them brings.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace fsdp::processes {

/// Longer and longer between two looks, so that ranks that share a core leave it to each other.
class Pause {
 public:
  /// `yields`: so many looks in a row only let other threads run.
  explicit Pause(int yields = 50) : yields_(yields) {}
  void reset() { count_ = 0; }
  /// The next pause; 0 = let other threads run. If it is urgent, the pauses stay short.
  std::chrono::microseconds next(bool is_urgent) {
    using std::chrono::microseconds;
    ++count_;
    if (count_ <= yields_) return microseconds{0};
    const microseconds longest = is_urgent ? microseconds{100} : microseconds{1'000};
    return std::min(longest, microseconds{10} * (1 << std::min(count_ - yields_, 8)));
  }

 private:
  int yields_;
  int count_ = 0;
};

inline void sleep(std::chrono::microseconds pause) {
  if (pause.count() == 0) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace fsdp::processes
