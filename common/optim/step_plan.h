/// @file
/// @ingroup optim
/// StepPlan: how a step takes its micro-batches.
#pragma once

#include <cstdint>

namespace fsdp::optim {

/// How one step processes its J = W·M micro-batches.
struct StepPlan {
  int micro_steps = 1;                ///< M: micro-batches of this rank
  int micro_steps_per_reduction = 1;  ///< L: divides M; 1 = reduce every time, more = no_sync
  /// finish_gradients() divides by J and by this. For means, it is d(loss) of every backward.
  double loss_scale = 1;
  /// Whether L divides M.
  bool is_valid() const {
    return micro_steps > 0 && micro_steps_per_reduction > 0 &&
           micro_steps % micro_steps_per_reduction == 0;
  }
  /// @throws Error unless it is valid.
  void validate() const;
  /// The global index of the micro-batch that rank r of W takes at micro-step m. With this map, a
  /// single process, accumulation and W ranks are cuts of one tree of additions.
  ///   j = ⌊m/L⌋·W·L + r·L + m mod L
  std::int64_t micro_batch(int m, int rank, int world_size) const;
  /// Whether gradients are reduced at the end of micro-step m, and not only summed on the rank.
  bool ends_reduction(int m) const { return (m + 1) % micro_steps_per_reduction == 0; }
  /// 1/(J · loss_scale), which makes a mean of the sum of W ranks' gradients. It is 1 if loss_scale
  /// is the double 1.0/J.
  double mean_factor(int world_size) const {
    return 1 / (static_cast<double>(world_size) * micro_steps) / loss_scale;
  }
};

/// A second factor of d(loss), so that no sum of gradients overflows: 2^-k, the largest power of
/// two that is at most 1/J, for the J micro-batches of a step. However gradients are added up, and
/// in whatever format, no sum is larger than the largest gradient of a micro-batch would be without
/// the factor. The mean is divided by it, so it changes no bit of what stays in range.
///
/// This is DeepSpeed's `prescale_gradients`, with three differences:
/// - DeepSpeed divides by W, and the loss by the number of micro-steps. J = W·M covers both, so
///   that every W gives the same bits.
/// - A division by 3 would round. A power of two does not.
/// - DeepSpeed divides each gradient before its reduction. Here the gradients of activations are
///   smaller too, which in float16 the loss scale makes up for.
double prescale_of(std::int64_t micro_batches);

}  // namespace fsdp::optim
