/// @file
/// @ingroup estimate
/// What the timing of sharded and of whole parameters share.
#pragma once

#include "estimate/formats.h"
#include "estimate/kernel_times.h"
#include "estimate/memory_options.h"
#include "estimate/model_shape.h"
#include "estimate/paper_clock.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>

namespace fsdp::estimate {

/// One rank's steps on paper. Behind TimeFormula.
class StepTiming {
 public:
  StepTiming(const ModelShape& shape, const MemoryOptions& options, const CostModel& machine,
             const KernelTimes& kernels)
      : shape_(shape),
        options_(options),
        formats_(options.mixed_precision),
        box_(machine.ranks_per_box),
        kernels_(kernels),
        clock_(machine) {}
  virtual ~StepTiming() = default;
  StepTiming(const StepTiming&) = delete;
  StepTiming& operator=(const StepTiming&) = delete;

  /// The next step; the first one differs.
  virtual StepTime next_step() = 0;

 protected:
  virtual bool is_repeatable() const = 0;
  const SegmentTimes& times_of(std::size_t segment) const;
  bool is_block(std::size_t segment) const {
    return segment > 0 && segment + 1 < shape_.segments.size();
  }
  bool is_checkpointed(std::size_t segment) const {
    return is_block(segment) && options_.checkpointing != Checkpointing::none;
  }
  /// Ranks first, first + stride, …
  GroupShape group_of(int first, int size, int stride) const {
    const bool is_far = box_ > 0 && first / box_ != (first + (size - 1) * stride) / box_;
    return {size, is_far};
  }

  // Kernels over `numel` elements, on the device or on its host.
  void copy(TimePart part, std::int64_t numel, std::int64_t from, std::int64_t to,
            bool on_host = false) {
    move(part, 0, static_cast<double>(numel) * static_cast<double>(from + to), on_host);
  }
  /// `count` additions of tensors to others.
  void add(std::int64_t numel, int count, bool on_host = false);
  void scale(std::int64_t numel, bool on_host = false);
  void fill(TimePart part, std::int64_t numel, std::int64_t element, bool on_host = false);
  void square(std::int64_t numel, bool on_host = false);
  /// The optimizer on a piece; makes its state in the first step.
  void update(std::int64_t numel, bool is_first, bool on_host = false);
  /// The counters of the norm are summed over a group.
  void sum_counters(const GroupShape& group);

  /// Runs micro-step m, or repeats one that is like it. If nothing is under way when they begin,
  /// and the order of the units is known, they differ only by the additions of a leaf.
  void run_micro_step(int m, const std::function<void()>& body);

  /// Additions when leaf number `leaf` is pushed into a TreeAccumulator, and when it is folded.
  static int additions_of_push(int leaf) { return std::countr_one(static_cast<unsigned>(leaf)); }
  static int additions_of_fold(int leaves) {
    return std::popcount(static_cast<unsigned>(leaves)) - 1;
  }

  const ModelShape& shape_;
  const MemoryOptions& options_;
  Formats formats_;
  int box_;
  const KernelTimes& kernels_;
  PaperClock clock_;

 private:
  std::map<std::tuple<int, int, bool>, StepTime> known_;  // micro-steps, by their additions

  void move(TimePart part, double flops, double nbytes, bool on_host, bool is_half = false);
};

}  // namespace fsdp::estimate
