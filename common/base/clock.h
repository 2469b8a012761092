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

  // Ranks in boxes: a link between two boxes may be slower than those inside one.
  int ranks_per_box = 0;  ///< consecutive ranks; 0 = all are in one box
  std::int64_t far_alpha_ps = 0;
  double far_link_ps_per_byte = 0;
};

/// The timelines of one rank, in picoseconds: the computation, the one communication channel inside
/// its box, and the one that leaves it.
class VirtualClock {
 public:
  explicit VirtualClock(CostModel model) : model_(model) {}

  /// A kernel runs: computation advances by max(flops, traffic) of the roofline, rounded to a
  /// picosecond.
  void compute(Cost cost);
  /// A collective over `world_size` ranks that delivers `nbytes` to this rank. It starts now or
  /// when its channel is free, whichever is later, and takes (W − 1)·α + nbytes·(link time per
  /// byte). `is_far`: its ranks are in several boxes, so the link between them sets its speed.
  /// @return its end, for wait_until().
  std::int64_t start_collective(int world_size, std::int64_t nbytes, bool is_far = false);
  /// The computation continues at `time` or later.
  void wait_until(std::int64_t time);

  std::int64_t now() const { return compute_; }
  std::int64_t channel_free(bool is_far = false) const { return is_far ? far_ : channel_; }
  const CostModel& model() const { return model_; }

 private:
  CostModel model_;
  std::int64_t compute_ = 0;
  std::int64_t channel_ = 0;
  std::int64_t far_ = 0;
};

}  // namespace fsdp
