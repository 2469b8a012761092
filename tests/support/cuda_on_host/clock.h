/// @file
/// Which operation comes before which: vector clocks. Component 0 is the host (all of its threads),
/// every stream is one more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace cuda_on_host {

class Clock {
 public:
  std::uint32_t at(std::size_t component) const {
    return component < times_.size() ? times_[component] : 0;
  }
  void set(std::size_t component, std::uint32_t time) {
    if (component >= times_.size()) times_.resize(component + 1);
    times_[component] = time;
  }
  /// Everything that `other` comes after, this comes after as well.
  void join(const Clock& other) {
    for (std::size_t i = 0; i < other.times_.size(); ++i) set(i, std::max(at(i), other.times_[i]));
  }

 private:
  std::vector<std::uint32_t> times_;
};

/// One kernel, copy or collective, or one access of the host.
struct Operation {
  std::string what;
  std::size_t component = 0;
  std::uint32_t time = 0;  ///< of its own component
  Clock clock;

  bool after(const Operation& other) const { return clock.at(other.component) >= other.time; }
};

}  // namespace cuda_on_host
