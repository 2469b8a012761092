/// @file
/// @ingroup paper
/// MemoryFormula: the bytes a rank holds at every moment of a training, without running it.
#pragma once

#include "base/breakdown.h"
#include "nn/call_state.h"
#include "nn/transformer_config.h"
#include "paper/memory_options.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::paper {

/// What is held at one of the eight moments of a unit (or the whole model: "root").
struct MemorySnapshot {
  std::string module;  ///< "model.embed_tokens", "model.layers.0", …, "model.norm+lm_head", "root"
  nn::CallState state;
  Breakdown bytes;
};

struct MicroStepMemory {
  std::vector<MemorySnapshot> snapshots;  ///< in the order of time
  Breakdown forward_peak;                 ///< between making the micro-batch and having the loss
  Breakdown backward_peak;                ///< from there to the end of end_micro_step()
};

struct StepMemory {
  std::vector<MicroStepMemory> micro_steps;
  Breakdown step_peak;  ///< finish_gradients, clip, optimizer, zero_grad
  Breakdown at_rest;    ///< after it
  /// The highest of all.
  Breakdown peak() const;
};

/// Memory of a training by formula, of the device or of its host (MemorySpace), equal to what
/// MemoryTracker counts, byte for byte and kind for kind, at every snapshot and at the peaks.
///
/// Notation: unit k in forward order has u_k elements in its flat parameter, n_k = ceil(u_k / W),
/// P_k = n_k·W (several flat parameters: their sum); J = W·M micro-batches; L micro-steps per
/// reduction; pop(m) = ones of m in binary. An element has p bytes in what the model reads, g in
/// sums of gradients, and 4 in masters (mixed precision; without it p = g = 4). Always there:
///
///     SHARDED_PARAM    4·Σ n                     the shards
///     OPTIMIZER        4·states·Σ n              from the first step on
///     BUFFER           4·2·T_max·D/2             RoPE tables, one for all layers
///     TEMP             threads · kScratchBytes   the threads' arenas, from the first kernel on
///     UNSHARDED_PARAM  4·whole                   ignored (replicated) parameters, and if p is
///                      p·whole                   another format, the copies that the model reads
///     UNSHARDED_GRAD   whole·(p + g·pop(m))      their gradients in micro-step m; their state has
///                                                4·states·whole
///
/// and while micro-step m computes:
///
///     ACTIVATION       8·B·T                     tokens and targets (int32)
///                      Σ_{j<k} kept_j + A_k      the tape: segment_memory.h
///                                                (checkpointed blocks: their input for kept_j,
///                                                and A_k in the backward of k only)
///                      4                         the loss, once it is there
///     TEMP             temp_k                    gradients of activations
///     UNSHARDED_PARAM  p·P_k + p·Σ P             the unit that computes, and up to `depth` ahead
///                                                (in forward k+1 …, in backward k−1 …; in the very
///                                                first forward the order is unknown: none)
///                      p·P_last                  the last unit, from its forward to its backward
///                      p·P_root                  tied: the root, from first forward to the end
///                      p·Σ P                     reshard never: every unit, until its backward
///                      p·Σ P/s                   within(s): every unit's part; while it becomes
///                                                one, part and whole are both held, and so
///                                                they are until a gather from the parts has ended
///     ALL_GATHER       p·Σ n                     mixed precision: copies of the shards that are
///                                                being gathered
///     UNSHARDED_GRAD   p·P_k                     the unit in backward (tied: and the root)
///                      p·P_{k+1}                 the one being reduced; if p and g are different
///     REDUCE_SCATTER   g·P_{k+1}                 formats, a copy is reduced instead
///                      g·n_{k+1}                 where it lands
///     SHARDED_GRAD     g·pop(m)·n_j, j ≤ k+1     sums of earlier micro-steps
///                      g·pop(m+1)·n_j, j > k+1   this one added
///
/// no_sync (L > 1): gradients stay whole until the last of L micro-steps: with m' = m mod L,
///     UNSHARDED_GRAD   g·pop(m')·P_j, j ≤ k and g·pop(m'+1)·P_j, j > k
/// on top, and SHARDED_GRAD counts reductions, ⌊m/L⌋ instead of m. That is its price.
///
/// The step: finish_gradients folds SHARDED_GRAD to g·Σ n and makes 4·Σ n of it, the clip has 514
/// counters of 8 bytes (TEMP), the optimizer makes its state in the first step, zero_grad frees the
/// gradients.
///
/// A mesh of R replicas: n = ceil(u / S) with S = W / R shards, and W/R takes W's place in P. The
/// shards of unit k+2 are still REDUCE_SCATTER while they are summed over the replicas, and become
/// SHARDED_GRAD when those of unit k+1 follow them.
///
/// Checkpointing around units: their second forward gathers and reshards like the first, but in the
/// order of backward. The first one keeps no parameters, since it has no tape.
///
/// Offload (Recipe::sharding.offload) moves SHARDED_PARAM and OPTIMIZER of the shards to the host,
/// and SHARDED_GRAD from finish_gradients on; with grads, always. On the device there remain
///
///     ALL_GATHER       p·Σ n                     copies of the shards that are being gathered
///     REDUCE_SCATTER   g·n_{k+2}                 grads: on its way to the host, until the shards
///                                                of unit k+1 follow (in a mesh, one unit later)
///
/// Without grads, a sum is on the device and on the host, g·n_k, while unit k's is copied.
///
/// Strategy ddp is the case that everything is ignored; single likewise, but gradients appear one
/// by one as backward goes. ZeRO-1 is ddp with 4·states·(what the rank owns) of OPTIMIZER, and if p
/// is another format, with 4·(what it owns) of masters. In the step two buffers of the broadcast
/// are TEMP. ZeRO-2 has gradients like single, until they are in a bucket, and each bucket's sums
/// only on its owner. Gradients that are compressed travel as a copy of 2 bytes per element, in
/// place of what is summed. W = 1 is not special: the shard is a second copy there.
///
/// With ZeRO, offload moves OPTIMIZER and masters of what the rank owns to the host, in float32
/// too: the device keeps p·N then. ZeRO-2's UNSHARDED_GRAD of what it owns follows when it becomes
/// float32; with grads, when it has been reduced: g per element of one bucket remain on the device
/// until the rank's next bucket follows. ZeRO-1 has 4 per element of what it owns on the host
/// beside the whole means. The two buffers of the broadcast are TEMP of the owner's host too.
///
/// What is frozen (Recipe::frozen) has no gradient, no state, and keeps less on the tape:
/// segments.h. With LoRA it has no master either: p·Σ n of it, and without
/// offload no copy in ALL_GATHER.
class MemoryFormula {
 public:
  /// Of what `space` holds. @throws Error if the options do not fit together.
  MemoryFormula(const nn::TransformerConfig& config, const MemoryOptions& options,
                MemorySpace space = MemorySpace::device);

  /// Step `index` of a training, from 0. All after the first are alike.
  StepMemory step(int index) const { return index == 0 ? first_ : later_; }
  /// What is held before the first step.
  const Breakdown& before_training() const { return before_; }
  /// The highest of the first `steps` steps.
  Breakdown peak(int steps) const;

 private:
  Breakdown before_;
  StepMemory first_;
  StepMemory later_;
};

/// MemoryFormula's peak over a training of two steps or more, found without the snapshots and with
/// one walk through micro-steps that are alike: at least five times faster.
Breakdown peak_of_training(const nn::TransformerConfig& config, const MemoryOptions& options,
                           MemorySpace space = MemorySpace::device);

/// CUDA's context and NCCL's buffers on a card, which no allocator counts: about 0.7 GiB with
/// PyTorch on an H100, the difference between what the driver and what the allocator say is in use.
inline constexpr std::int64_t kOutsideBytes = 700 << 20;

/// The bytes of its device that no rank exceeds in a training of `steps` steps: the peak of
/// MemoryFormula, which the training reaches exactly. It counts from begin_step() of the first step
/// to zero_grad() of the last. What comes before stays below it too if the model is built on meta
/// (fully_shard never holds more than the shards then); an eager build holds the whole model for a
/// moment, and generating text or writing a full checkpoint is another matter.
std::int64_t bound_bytes(const nn::TransformerConfig& config, const MemoryOptions& options,
                         int steps);
/// The same for each rank by itself, of the device or of its host. They differ in ZeRO-1 and
/// ZeRO-2, whose ranks own different parameters.
std::vector<std::int64_t> bound_bytes_by_rank(const nn::TransformerConfig& config,
                                              const MemoryOptions& options, int steps,
                                              MemorySpace space = MemorySpace::device);

/// The bytes that each rank does not exceed while it evaluates a model that it does not train: no
/// gradients, no optimizer state, no tape. An upper bound: it frees the activations of a block at
/// its end.
std::vector<std::int64_t> evaluation_bounds_by_rank(const nn::TransformerConfig& config,
                                                    const MemoryOptions& options,
                                                    MemorySpace space = MemorySpace::device);

}  // namespace fsdp::paper
