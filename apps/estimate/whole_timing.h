/// @file
/// @ingroup estimate
/// WholeTiming: the steps of one process, DDP, ZeRO-1 and ZeRO-2 on paper, with their time.
#pragma once

#include "estimate/step_timing.h"
#include "parallel/partition.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::estimate {

/// Every rank holds all parameters; what differs is what becomes of a gradient when it is complete.
class WholeTiming : public StepTiming {
 public:
  WholeTiming(const ModelShape& shape, const MemoryOptions& options, const CostModel& machine,
              const KernelTimes& kernels);
  StepTime next_step() override;

 private:
  bool is_repeatable() const override { return true; }
  /// A gradient of a segment, when it is complete.
  struct Place {
    std::int64_t at;
    std::size_t part;  // index into ModelShape::whole_parts
  };
  /// Gradients that travel together.
  struct Bucket {
    std::int64_t numel = 0;
    std::size_t size = 0;     // gradients, or slices of gradients
    std::size_t missing = 0;  // of these
    int owner = 0;            // ZeRO-2, from here on
    bool is_direct = false;
    std::int64_t end = 0;
    std::vector<std::int64_t> slices = {};  // numels
  };
  /// A slice's bucket.
  struct Slice {
    std::size_t bucket;
    std::int64_t numel;
  };

  void make_buckets();
  void make_owned_buckets();
  void micro_step(int m);
  void complete(std::size_t part, int m);
  void close(Bucket& bucket, int m);
  void end_micro_step(int m);
  void finish_in_flight();
  void finish_gradients();
  void clip();
  void broadcast();

  bool is_single() const { return options_.placement == Placement::single; }
  bool is_zero2() const { return options_.placement == Placement::zero2; }
  bool has_owners() const { return is_zero2() || options_.placement == Placement::zero1; }
  bool is_mine(const Bucket& bucket) const { return bucket.owner == options_.rank; }
  int group() const { return is_single() ? 1 : options_.micro_steps_per_reduction; }
  /// Of a broadcast, or of a reduction to one rank.
  std::int64_t one_way(std::int64_t nbytes) const { return options_.world_size == 1 ? 0 : nbytes; }
  void divide_mean(std::int64_t numel);

  GroupShape world_;
  std::vector<std::vector<Place>> completions_;  // by segment
  std::vector<Bucket> buckets_;                  // a single process: one per parameter
  std::vector<std::vector<Slice>> slices_;       // by part
  std::vector<std::int64_t> pieces_;             // numels this rank updates
  std::vector<std::vector<parallel::OwnedSlice>> broadcasts_;
  std::size_t next_ = 0;         // the first bucket not yet closed
  Bucket* in_flight_ = nullptr;  // ZeRO-2
  int leaf_ = 0;
  bool has_state_ = false;
};

}  // namespace fsdp::estimate
