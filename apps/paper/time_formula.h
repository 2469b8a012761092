/// @file
/// @ingroup paper
/// TimeFormula: how long a training step takes on a modeled machine, without running it.
#pragma once

#include "base/clock.h"
#include "nn/transformer_config.h"
#include "paper/kernel_times.h"
#include "paper/memory_options.h"
#include "paper/paper_clock.h"

namespace fsdp::paper {

/// @throws optim::RecipeError for what the clock has no rules for.
void check_timed(const MemoryOptions& options);

/// The time of a step by formula, equal to what the virtual clock says of a TrainedModel on the
/// fake device, to the picosecond: from begin_step() to the end of zero_grad(), with Recipe::clip
/// including the clip.
///
/// Notation: u_k elements in unit k, n_k = ceil(u_k / S), P_k = n_k·S, S = W / R; p, g bytes of an
/// element that the model reads, and of a sum. A rank has three streams. The computation
/// takes each kernel's max(flop·time of a flop, bytes·time of a byte). The channel (one inside a
/// box, one between boxes) takes, one collective after the other,
///
///     gather     (S − 1)·α + (S − 1)·p·n_k / B          of unit k, issued `depth` units ahead
///     reduce     (S − 1)·α + (S − 1)·g·n_k / B          after its backward
///     across     (R − 1)·α + 2·(R − 1)/R·g·n_k / B      a mesh: the sums of the replicas
///     buckets    (W − 1)·α + 2·(W − 1)/W·bytes / B      DDP, ZeRO-1
///     to owner   (W − 1)·α + bytes / B                  ZeRO-2, and broadcasts of both
///
/// and the bus one copy after the other, 4·n_k in and g·n_k out (offload). A collective or a copy
/// begins when it is issued or when its stream is free, whichever is later; waiting joins the
/// streams. For K equal units with one unit ahead that gives, with f, b, g, ρ of a unit,
///
///     forward    g + (K − 1)·max(f, g) + f
///     backward   max(b, g) + (K − 2)·max(b, g + ρ) + max(b, ρ) + ρ
///
/// The norm on a fake device is zero, so that the clip is computed and never scales.
class TimeFormula {
 public:
  /// @throws Error if the options do not fit together, or as check_timed() does.
  TimeFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
              const CostModel& machine);
  /// The same, with kernel_times() of this model, machine, batch and format, which many formulas of
  /// a plan share.
  TimeFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
              const CostModel& machine, const KernelTimes& kernels);

  /// Step `index` of a training, from 0. All after the first are alike.
  const StepTime& step(int index) const { return index == 0 ? first_ : later_; }

 private:
  StepTime first_;
  StepTime later_;
};

}  // namespace fsdp::paper
