/// @file
/// @ingroup paper
/// What the tape keeps of one micro-batch, what its backward holds for a moment, and what both
/// compute, operation by operation.
#pragma once

#include "base/clock.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::paper {

/// Bytes alive in one segment after an operation.
struct MemoryPoint {
  std::string after;             ///< "down_proj", "down_proj: weight", …
  std::int64_t activation = 0;   ///< counted as ACTIVATION
  std::int64_t temp = 0;         ///< counted as TEMP
  std::int64_t weight_grad = 0;  ///< gradients of its weights so far; they count in a single
                                 ///< process only, as FSDP and DDP write them into given buffers
  std::size_t kernels = 0;       ///< called so far in this pass
};

/// What a kernel costs, and the operation that calls it.
struct Kernel {
  std::string operation;
  Cost cost;
};

/// A stretch of the tape: the embedding, one block, the head (final norm and lm_head), or the loss.
///
/// A segment counts its input from the moment it begins, and its output until it ends. So a whole
/// tape holds the kept() of the segments that wait for backward, plus one point of the segment that
/// computes, and nothing is counted twice.
///
///     forward    enters with its input               leaves with kept() + its output
///     backward   enters with kept() + d(output)      leaves with d(input)
///
/// (The loss makes d(loss) itself.)
///
/// Of a model that is trained as a whole, this is what is kept, with R = B·T rows. An element has
/// the bytes of the format that the model computes in; lse and r are float32 in each:
///
///     x = R·d    one row vector per token     kv = R·G·D  keys, or values
///     q = R·H·D  queries; x if D = d / H      lse = R·H   attention's normalizers
///     f = R·F    one hidden vector per token  r = R       one number per row (rstd)
///     v = R·V    logits, then their gradient
///
///     kept by    embedding  0 (the tokens belong to the data)
///                block      4x + 2q + 2kv + 3f + lse + 2r
///                           input, norm, middle, norm | q, attention | k, v | gate, up, hidden
///                head       2x + r
///                loss       v
struct SegmentMemory {
  std::vector<MemoryPoint> forward;   ///< front(): on entry, back(): on exit
  std::vector<MemoryPoint> backward;  ///< likewise; empty if nothing was recorded
  std::int64_t dropped = 0;  ///< bytes of its input that are not kept: freed when it has returned
  /// A checkpointed block has the second form: its forward runs without a tape and keeps the input,
  /// and some results if it is told to, and backward begins with
  ///
  ///     again      enters with kept() + d(output)      leaves with A_k + d(output)
  bool is_checkpointed = false;
  std::vector<MemoryPoint> again = {};  ///< empty if nothing was recorded
  /// Of our engine, in the order of their calls; empty of another framework's.
  struct Kernels {
    std::vector<Kernel> forward, again, backward;
  } kernels = {};
  /// What stays between forward and backward, the output left out: A_k, or what a checkpoint keeps.
  std::int64_t kept() const {
    const std::vector<MemoryPoint>& first = again.empty() ? backward : again;
    return first.empty() ? 0 : first.front().activation;
  }
};

/// Segments in forward order; those that are alike are one object.
using Segments = std::vector<std::shared_ptr<const SegmentMemory>>;

}  // namespace fsdp::paper
