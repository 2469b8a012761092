/// @file
/// @ingroup base
/// A clock that only advances with modeled work: tests and estimates compute time and do not
/// measure it.
#pragma once

#include <cstdint>

namespace fsdp {

inline constexpr double kPicosecondsPerSecond = 1e12;

/// The work of a kernel, which determines its duration.
struct Cost {
  double flops = 0;
  double nbytes = 0;     ///< memory traffic, read and written
  bool is_half = false;  ///< its operands have 16 bits
};

/// Speed of the modeled machine, in picoseconds per unit of work.
struct CostModel {
  double ps_per_flop = 0;
  double ps_per_flop_16 = 0;    ///< where operands have 16 bits; 0 = ps_per_flop
  double ps_per_byte = 0;       ///< device memory
  std::int64_t alpha_ps = 0;    ///< latency of one hop of a collective
  double link_ps_per_byte = 0;  ///< per byte received by a rank
  double bus_ps_per_byte = 0;   ///< per byte copied between device and host
  double host_ps_per_byte = 0;  ///< host memory; what runs on the host costs nothing else

  // Ranks in boxes: a link between two boxes may be slower than those inside one.
  int ranks_per_box = 0;  ///< consecutive ranks; 0 = all are in one box
  std::int64_t far_alpha_ps = 0;
  double far_link_ps_per_byte = 0;
};

/// Of host memory, unless a machine has another: 200 GB/s.
inline constexpr double kHostPsPerByte = kPicosecondsPerSecond / 200e9;

/// The timelines of one rank, in picoseconds: the computation, the one communication channel inside
/// its box, the one that leaves it, and the copies over the bus between device and host.
class VirtualClock {
 public:
  explicit VirtualClock(CostModel model) : model_(model) {}

  /// A kernel runs: computation advances by max(flops, traffic) of the roofline, rounded to a
  /// picosecond.
  void compute(Cost cost);
  /// The same on the host: `nbytes` of host memory, and nothing for arithmetic. The rank's program
  /// waits for it, so that computation stands still.
  void compute_on_host(double nbytes);
  /// A collective over `world_size` ranks that delivers `nbytes` to this rank. It starts now, when
  /// its channel is free, or when its operands are there (`ready`), whichever is latest, and takes
  /// (W − 1)·α + nbytes·(link time per byte). `is_far`: its ranks are in several boxes, so the link
  /// between them sets its speed.
  /// @return its end, for wait_until().
  std::int64_t start_collective(int world_size, std::int64_t nbytes, bool is_far = false,
                                std::int64_t ready = 0);
  /// A copy of `nbytes` between device and host. Copies of both directions share one stream: it
  /// starts now or when the copy before it has ended, whichever is later.
  /// @return its end.
  std::int64_t start_copy(std::int64_t nbytes);
  /// The computation continues at `time` or later.
  void wait_until(std::int64_t time);

  std::int64_t now() const { return compute_; }
  std::int64_t channel_free(bool is_far = false) const { return is_far ? far_ : channel_; }
  std::int64_t bus_free() const { return bus_; }
  const CostModel& model() const { return model_; }

 private:
  CostModel model_;
  std::int64_t compute_ = 0;
  std::int64_t channel_ = 0;
  std::int64_t far_ = 0;
  std::int64_t bus_ = 0;
};

}  // namespace fsdp
