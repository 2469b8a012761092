/// @file
/// @ingroup paper
/// The bytes that a rank receives in a step, without running it.
#pragma once

#include "nn/transformer_config.h"
#include "paper/memory_options.h"

#include <cstdint>

namespace fsdp::paper {

/// What one rank receives in one step, in bytes, by what it is for. All ranks receive as many.
struct WireBytes {
  std::int64_t gathers = 0;     ///< parameters, of what is sharded
  std::int64_t reductions = 0;  ///< gradients: over all ranks or, in a mesh, over one replica
  std::int64_t across = 0;      ///< gradients: over the replicas of a mesh
  std::int64_t broadcasts = 0;  ///< updated parameters, of ZeRO-1 and ZeRO-2
  std::int64_t norm = 0;        ///< the counters of the global norm, if the step clips
  std::int64_t total() const { return gathers + reductions + across + broadcasts + norm; }
  WireBytes& operator+=(const WireBytes& other);
  WireBytes operator-(const WireBytes& other) const;
};

/// Equal to what ProcessGroup::total_received() counts, byte for byte. With N elements in all, p
/// bytes of one in what the model reads and g in sums of gradients, M micro-steps, Q = M / L
/// reductions (L is M under no_sync, else 1), R replicas of S shards, and sizes divisible by S:
///
///     gathers      M · (S-1)/S · p · (2·N - kept)     reshard always; `kept` are the elements of
///                                                     the unit that stays until its backward
///                  M · (S-1)/S · p · N                reshard never
///     reductions   Q · (S-1)/S · g · N                reduce-scatter
///     across       Q · 2·(R-1)/R · g · N/S            all-reduce of shards
///
///     DDP          Q · 2·(W-1)/W · g · N              all-reduce
///     ZeRO-1       Q · 2·(W-1)/W · g · N + p·N        and the owners broadcast (2·N in float16)
///     ZeRO-2       Q · g · N + p·N                    reduce instead of all-reduce
///
/// Compressed, whole gradients travel in 2 bytes in place of g. Without
/// ZeroOptions::reduce_scatter, ZeRO-2 reduces like DDP.
///
/// In general n = ceil(u / S) of each flat parameter of u elements takes the place of u / S. Only
/// what is trained has gradients; what is ignored is reduced as with DDP. reshard within(s) gathers
/// (s-1)/s of a unit for backward. Checkpointing around units gathers each block once more. Below
/// the lowest trained parameter there is no backward, but up to `prefetch_depth` units there are
/// gathered ahead. A rank alone receives nothing.
WireBytes wire_bytes(const nn::TransformerConfig& config, const MemoryOptions& options);

}  // namespace fsdp::paper
