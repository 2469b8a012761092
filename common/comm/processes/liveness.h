/// @file
/// @ingroup comm
/// Whether the other processes are still there. A machine that loses its power or its network sends
/// no message that says so: you notice it by the silence.
#pragma once

#include <chrono>
#include <map>
#include <optional>

namespace fsdp::processes {

/// Every process sends a beat now and then, whatever its rank does. If nothing arrives from a peer
/// for `limit`, it is gone. Time during which this process itself was stopped does not count.
class Liveness {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBeat{500};

  /// A `limit` of 0: never.
  Liveness(std::chrono::milliseconds limit, Clock::time_point now)
      : limit_(limit), last_beat_(now), last_check_(now) {}

  /// Something has arrived from a peer. Only a peer that was heard once can fall silent.
  void heard(int peer, Clock::time_point now) { heard_[peer] = now; }
  /// True once per kBeat.
  bool is_beat_due(Clock::time_point now);
  /// A peer that has fallen silent.
  std::optional<int> silent(Clock::time_point now);

 private:
  std::chrono::milliseconds limit_;
  Clock::time_point last_beat_;
  Clock::time_point last_check_;
  std::map<int, Clock::time_point> heard_;
};

/// How long a process may be silent: FSDP_MPI_SILENCE seconds in the environment, by default 30.
/// @throws InputError if that is no whole number
std::chrono::milliseconds silence_limit();

}  // namespace fsdp::processes
