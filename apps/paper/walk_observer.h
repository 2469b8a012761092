/// @file
/// @ingroup paper
/// WalkObserver: sees a walk while it goes.
#pragma once

#include "base/breakdown.h"
#include "nn/call_state.h"
#include "paper/memory_options.h"
#include "paper/paper_clock.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp::paper {

/// A change of what is held.
struct BytesChange {
  MemorySpace space;
  MemoryKind kind;
  std::int64_t nbytes;  ///< more; negative: less
  const Owner& owner;   ///< a unit, or the segment and operation that made them
  std::int64_t time;    ///< of the clock, in picoseconds; 0 without one
};

/// A stretch of time on one of a rank's streams. Its text lives as long as the call.
struct Span {
  enum class Stream {
    compute,   ///< what the rank computes or waits for, as `part` says
    link,      ///< a collective that `part` waits for
    far_link,  ///< the same between boxes
    bus,       ///< a copy between device and host
  } stream;
  TimePart part;
  std::string_view what;    ///< a segment, a unit, or what the kernels do: "cast", "mean"
  std::int64_t begin, end;  ///< picoseconds of the clock
};

/// Told in the order of time. For instruments that need more than the peaks.
class WalkObserver {
 public:
  virtual ~WalkObserver() = default;
  virtual void on_bytes(const BytesChange& change) = 0;
  /// These bytes of the change's kind are of kind `to` from now on.
  virtual void on_relabel(const BytesChange& change, MemoryKind to) = 0;
  /// @param module "root", a segment, or an operation within one ("model.layers.0.q_proj")
  virtual void on_state(const std::string& module, nn::CallState state) = 0;
  /// Of a walk with a clock; those of a link and of the bus when they are issued.
  virtual void on_span(const Span& /*span*/) {}
  /// inputs, forward, backward, gradients, clip, optimizer
  /// @param micro_step -1: of none
  virtual void on_phase(const char* name, int micro_step) = 0;
};

}  // namespace fsdp::paper
