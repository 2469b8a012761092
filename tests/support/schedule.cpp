#include "support/schedule.h"

#include <algorithm>
#include <vector>

namespace fsdp::testing {

namespace {

/// Gathers of the units that are to be used in turn, 0 … n-1.
class Gathers {
 public:
  Gathers(int count, const ScheduleCase& times) : count_(count), times_(times) {}

  /// Before the computation of number `i`: it must be there, and the next ones may start.
  void before(int i, std::int64_t& now, std::int64_t& channel) {
    if (started_ <= i) start(now, channel);
    now = std::max(now, ends_[static_cast<std::size_t>(i)]);
    ahead_of(i + 1, now, channel);
  }

  /// Numbers `from` … from + depth - 1 may start, but no more than the limit at a time.
  void ahead_of(int from, std::int64_t now, std::int64_t& channel) {
    const int limit = times_.limit == 0 ? times_.depth : times_.limit;
    const int end = std::min(count_, from + times_.depth);
    while (started_ < end && started_ - from < limit) start(now, channel);
  }

 private:
  void start(std::int64_t now, std::int64_t& channel) {
    channel = std::max(now, channel) + times_.gather;
    ends_.push_back(channel);
    ++started_;
  }

  int count_;
  const ScheduleCase& times_;
  int started_ = 0;
  std::vector<std::int64_t> ends_;
};

}  // namespace

ScheduleTimes play(const ScheduleCase& times) {
  std::int64_t now = 0;
  std::int64_t channel = 0;
  Gathers forward(times.units, times);
  for (int k = 0; k < times.units; ++k) {
    forward.before(k, now, channel);
    now += times.forward;
  }
  const std::int64_t half = now;

  std::int64_t reduced = now;                // when the reduction in flight ends
  Gathers backward(times.units - 1, times);  // the last unit is still there
  for (int k = 0; k < times.units; ++k) {
    if (k == 0) {
      backward.ahead_of(0, now, channel);
    } else {
      backward.before(k - 1, now, channel);
    }
    now = std::max(now + times.backward, reduced);
    channel = reduced = std::max(now, channel) + times.reduce;
  }
  return {half, reduced - half};
}

ScheduleTimes formula(const ScheduleCase& times) {
  const auto& [units, f, b, g, r, depth, limit] = times;
  return {g + (units - 1) * std::max(f, g) + f,
          std::max(b, g) + (units - 2) * std::max(b, g + r) + std::max(b, r) + r};
}

}  // namespace fsdp::testing
