/// @file
/// @ingroup paper
/// PaperClock: a virtual clock that writes down what its time was spent on.
#pragma once

#include "base/clock.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace fsdp::paper {

/// What a rank does, or waits for. These add up to the time of a step.
enum class TimePart {
  forward,
  recomputation,  ///< forward again, of checkpointed blocks
  backward,
  gradients,  ///< casts of parameters and gradients, and sums of gradients on this rank
  optimizer,  ///< the norm, the update
  gathers,    ///< from here on: waiting. For parameters
  reductions,
  updates,  ///< the norm over all ranks, the owners' broadcasts
  copies,   ///< over the bus between device and host
};
inline constexpr std::size_t kTimeParts = 9;
std::string_view name_of(TimePart part);
constexpr bool is_waiting(TimePart part) { return part >= TimePart::gathers; }

/// Picoseconds of a step by what they were spent on.
struct TimeSplit {
  std::array<std::int64_t, kTimeParts> ps{};
  std::int64_t operator[](TimePart part) const { return ps[static_cast<std::size_t>(part)]; }
  std::int64_t& operator[](TimePart part) { return ps[static_cast<std::size_t>(part)]; }
  std::int64_t total() const { return std::accumulate(ps.begin(), ps.end(), std::int64_t{0}); }
  friend bool operator==(const TimeSplit&, const TimeSplit&) = default;
};

/// How long the channels were in use, whether a rank waited for them or not.
struct ChannelTime {
  std::int64_t latency = 0;   ///< (W − 1)·α
  std::int64_t transfer = 0;  ///< bytes over the link
  friend bool operator==(const ChannelTime&, const ChannelTime&) = default;
};

struct StepTime {
  TimeSplit split;
  ChannelTime channels;
  std::int64_t total() const { return split.total(); }
  StepTime operator-(const StepTime& other) const;
  friend bool operator==(const StepTime&, const StepTime&) = default;
};

/// The ranks of a collective.
struct GroupShape {
  int size = 1;
  bool is_far = false;  ///< they are in several boxes
};

/// VirtualClock, with the split.
class PaperClock {
 public:
  explicit PaperClock(const CostModel& machine) : clock_(machine) {}

  /// A kernel, of this cost or of a known duration.
  void compute(TimePart part, Cost cost);
  void compute_for(TimePart part, std::int64_t ps);
  /// A kernel of the host, which moves `nbytes` of its memory.
  void compute_on_host(TimePart part, double nbytes);
  /// @return when it ends
  std::int64_t start_collective(const GroupShape& group, std::int64_t nbytes,
                                std::int64_t ready = 0);
  std::int64_t start_copy(std::int64_t nbytes) { return clock_.start_copy(nbytes); }
  void wait(TimePart part, std::int64_t end);

  std::int64_t now() const { return clock_.now(); }
  /// From when on a collective of these ranks, or a copy, has its stream for itself.
  std::int64_t channel_free(const GroupShape& group) const {
    return clock_.channel_free(group.is_far);
  }
  std::int64_t bus_free() const { return clock_.bus_free(); }
  /// Of the time since the last call.
  StepTime take();
  /// Of the same time, which goes on.
  const StepTime& spent() const { return step_; }
  /// Spends the same so many times more. now() stands still.
  void repeat(const StepTime& time, std::int64_t times);
  /// Until when both channels and the bus are in use.
  std::array<std::int64_t, 3> busy_until() const {
    return {clock_.channel_free(false), clock_.channel_free(true), clock_.bus_free()};
  }

 private:
  VirtualClock clock_;
  StepTime step_;
};

}  // namespace fsdp::paper
