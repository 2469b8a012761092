/// @file
/// @ingroup base
/// A clock that only advances with modeled work: tests and estimates compute time and do not
/// measure it.
#pragma once

#include <cstdint>

namespace fsdp {

/// The work of a kernel, which determines its duration.
struct Cost {
  double flops = 0;
  double nbytes = 0;  ///< memory traffic, read and written
};

/// Speed of the modeled machine, in picoseconds per unit of work.
struct CostModel {
  double ps_per_flop = 0;
  double ps_per_byte = 0;       ///< device memory
  std::int64_t alpha_ps = 0;    ///< latency of one hop of a collective
  double link_ps_per_byte = 0;  ///< per byte received by a rank
};

/// Two timelines of one rank, in picoseconds: the computation and the one communication channel.
class VirtualClock {
 public:
  explicit VirtualClock(CostModel model) : model_(model) {}

  /// A kernel runs: computation advances by max(flops, traffic) of the roofline, rounded to a
  /// picosecond.
  void compute(Cost cost);
  /// A collective over `world_size` ranks that delivers `nbytes` to this rank. It starts now or
  /// when the channel is free, whichever is later, and takes (W − 1)·α + nbytes·(link time per
  /// byte).
  /// @return its end, for wait_until().
  std::int64_t start_collective(int world_size, std::int64_t nbytes);
  /// The computation continues at `time` or later.
  void wait_until(std::int64_t time);

  std::int64_t now() const { return compute_; }
  std::int64_t channel_free() const { return channel_; }
  const CostModel& model() const { return model_; }

 private:
  CostModel model_;
  std::int64_t compute_ = 0;
  std::int64_t channel_ = 0;
};

}  // namespace fsdp
