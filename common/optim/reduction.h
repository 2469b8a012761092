/// @file
/// @ingroup optim
/// How whole gradients are summed over ranks, and who owns which of them.
#pragma once

#include "base/types.h"

#include <cstddef>
#include <optional>

namespace fsdp::optim {

/// Gradients that are reduced together unless a training says otherwise: 25 MiB.
inline constexpr std::size_t kBucketBytes = std::size_t{25} << 20;

/// How gradients are summed over ranks.
struct ReduceOptions {
  /// Gradients travel in this format of 16 bits, as with PyTorch's fp16_compress_hook: they are
  /// cast, reduced (each addition is rounded), and cast back. Sums over the micro-steps keep their
  /// own format. So the bits depend on W, and on how many micro-steps share a reduction; otherwise
  /// they are the same for DDP, ZeRO-1 and ZeRO-2.
  std::optional<DType> compression = {};
  /// false: a reduction is waited for as soon as it is issued, so that it hides behind nothing.
  bool overlap = true;
};

/// How parameters are divided among W ranks, for sizes 1, 1, 1, 1, 4 and W = 2:
///
///     greedy   0 1 0 1 | 0 0 0 0    each parameter whole, in the order of registration, to the
///                                   rank with the smallest load so far (FairScale's OSS); of
///                                   several such ranks, the lowest. Here the loads are 6 and 2.
///     flat     0 0 0 0 | 1 1 1 1    one cut through all parameters as if they were one vector
///                                   (DeepSpeed). Each rank has N / W elements, and the first
///                                   N mod W ranks have one more. A parameter may have several
///                                   owners.
///     round_robin
///               0 1 0 1 | 0 0 1 1   the same cut after a reorder (DeepSpeed's
///                                   round_robin_gradients): parameters 0, W, 2W, … come first,
///                                   then 1, W + 1, … So the cut goes through 0 2 4 1 3, and here
///                                   the last parameter straddles it. Backward completes the
///                                   gradients of several owners in turn, and not all those of
///                                   the last rank first.
enum class Partition { greedy, flat, round_robin };

/// What ZeRO-1 and ZeRO-2 may be told.
struct ZeroOptions {
  Partition partition = Partition::greedy;
  /// ZeRO-2: gradients of one owner that are reduced together, in bytes; 0 = each one by itself.
  std::size_t reduce_buffer_bytes = 0;
  /// Updated parameters of one owner that are broadcast together, in bytes of what travels.
  std::size_t broadcast_buffer_bytes = kBucketBytes;
  /// Broadcasts float16 and rounds the owner's parameters (or masters) too, so that ranks stay
  /// equal. An update below half the distance to the next float16 is lost.
  bool broadcast_fp16 = false;
  ReduceOptions reductions = {};
  /// ZeRO-2: a gradient is copied into the buffer that it travels in as soon as it is complete, and
  /// freed. false: gradients stay where they were made until all of a buffer are complete, so for a
  /// moment both are held. Either way, a whole gradient that travels by itself is not copied.
  bool contiguous_gradients = true;
  /// ZeRO-2: gradients are reduced to their owner. false: they are all-reduced, and all ranks but
  /// the owner drop the sum (DeepSpeed's name for this switch).
  bool reduce_scatter = true;
};

}  // namespace fsdp::optim
