/// @file
/// @ingroup train
/// StopWatch: how long parts of a step take.
#pragma once

#include <chrono>
#include <utility>

namespace fsdp::train {

/// Runs from when it is made.
class StopWatch {
 public:
  /// Seconds since it was made, or since the last lap().
  double lap() {
    const auto before = std::exchange(begin_, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(begin_ - before).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace fsdp::train
