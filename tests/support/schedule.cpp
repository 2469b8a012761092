#include "support/schedule.h"

#include <algorithm>
#include <vector>

namespace fsdp::testing {

namespace {

/// When each of them is free.
struct Lines {
  std::int64_t now = 0;  // computation
  std::int64_t channel = 0;
  std::int64_t bus = 0;
};

/// Gathers of the units that are to be used in turn, 0 … n-1.
class Gathers {
 public:
  Gathers(int count, const ScheduleCase& times) : count_(count), times_(times) {}

  /// Before the computation of number `i`: it must be there, and the next ones may start.
  void before(int i, Lines& lines) {
    if (started_ <= i) start(lines);
    lines.now = std::max(lines.now, ends_[static_cast<std::size_t>(i)]);
    ahead_of(i + 1, lines);
  }

  /// Numbers `from` … from + depth - 1 may start, but no more than the limit at a time.
  void ahead_of(int from, Lines& lines) {
    const int limit = times_.limit == 0 ? times_.depth : times_.limit;
    const int end = std::min(count_, from + times_.depth);
    while (started_ < end && started_ - from < limit) start(lines);
  }

 private:
  void start(Lines& lines) {
    if (times_.copy_in > 0) lines.bus = std::max(lines.now, lines.bus) + times_.copy_in;
    const std::int64_t copied = times_.copy_in > 0 ? lines.bus : 0;
    lines.channel = std::max({lines.now, lines.channel, copied}) + times_.gather;
    ends_.push_back(lines.channel);
    ++started_;
  }

  int count_;
  const ScheduleCase& times_;
  int started_ = 0;
  std::vector<std::int64_t> ends_;
};

/// Of gradient shards to the host: one is waited for when the next one starts.
class CopiesOut {
 public:
  explicit CopiesOut(std::int64_t duration) : duration_(duration) {}
  void start(Lines& lines) {
    if (duration_ == 0) return;
    finish(lines);
    lines.bus = end_ = std::max(lines.now, lines.bus) + duration_;
  }
  void finish(Lines& lines) const { lines.now = std::max(lines.now, end_); }

 private:
  std::int64_t duration_;
  std::int64_t end_ = 0;
};

}  // namespace

ScheduleTimes play(const ScheduleCase& times) {
  Lines lines;
  Gathers forward(times.units, times);
  for (int k = 0; k < times.units; ++k) {
    forward.before(k, lines);
    lines.now += times.forward;
  }
  const std::int64_t half = lines.now;

  std::int64_t reduced = lines.now;          // when the reduction in flight ends
  Gathers backward(times.units - 1, times);  // the last unit is still there
  CopiesOut copies(times.copy_out);
  for (int k = 0; k < times.units; ++k) {
    if (k == 0) {
      backward.ahead_of(0, lines);
    } else {
      backward.before(k - 1, lines);
    }
    lines.now = std::max(lines.now + times.backward, reduced);
    if (k > 0) copies.start(lines);
    lines.channel = reduced = std::max(lines.now, lines.channel) + times.reduce;
  }
  lines.now = std::max(lines.now, reduced);
  copies.start(lines);
  copies.finish(lines);
  return {half, lines.now - half};
}

ScheduleTimes formula(const ScheduleCase& times) {
  const auto& [units, f, b, g, rho, depth, limit, in, out] = times;
  return {g + (units - 1) * std::max(f, g) + f,
          std::max(b, g) + (units - 2) * std::max(b, g + rho) + std::max(b, rho) + rho};
}

}  // namespace fsdp::testing
