/// @file
/// @ingroup estimate
/// What the memory of a training depends on, beside its model.
#pragma once

#include "nn/transformer.h"
#include "optim/mixed_precision.h"
#include "optim/offload.h"
#include "parallel/zero.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::estimate {

/// Where parameters, gradients and optimizer state live.
enum class Placement {
  single,   ///< whole, in one process (optim::LocalGradients)
  ddp,      ///< whole on every rank (parallel::DdpGradients)
  zero1,    ///< the same, but a rank has optimizer state only for what it owns (Zero1Gradients)
  zero2,    ///< the same, and it keeps gradients only of what it owns (Zero2Gradients)
  sharded,  ///< 1/W on every rank (fully_shard with the default wrap policy)
};

/// When a unit's parameters are resharded after forward, as in ReshardAfterForward.
enum class Reshard {
  always,
  never,
  within,  ///< a subgroup of ranks, which then hold one copy together
};

/// Where the blocks of a model are checkpointed, as in task8_beyond/checkpoint.h.
enum class Checkpointing {
  none,
  inside,  ///< FSDP(checkpoint(block)); without FSDP, checkpoint(block)
  around,  ///< checkpoint(FSDP(block)), sharded only
};

/// Two memories, counted apart.
enum class MemorySpace {
  device,
  host,  ///< of the device; holds what is offloaded
};

/// Every rank holds the same number of bytes: shards are padded to one size. Only with ZeRO-1 and
/// ZeRO-2 it depends on the rank, because the greedy partition gives ranks different loads.
struct MemoryOptions {
  Placement placement = Placement::sharded;
  int world_size = 1;                 ///< W
  int replicas = 1;                   ///< R of a mesh (sharded only); each has W / R shards
  std::int64_t batch = 1;             ///< B, sequences of a micro-batch
  std::int64_t length = 0;            ///< T, tokens of a sequence; 0 = max_position_embeddings
  int micro_steps = 1;                ///< M: micro-batches of a rank and step
  int micro_steps_per_reduction = 1;  ///< L: 1, or M under no_sync
  int threads = 1;                    ///< of a rank
  bool clips = false;                 ///< the global norm is computed each step
  int optimizer_states = 2;           ///< tensors per parameter: AdamW 2, SGD 0 or 1 (momentum)
  /// Per element of an update (time only), as update_flops() says; 0 = AdamW, or SGD.
  double update_flops = 0;
  optim::MixedPrecision mixed_precision;  ///< over masters of float32
  /// Every block, or none.
  Checkpointing checkpointing = Checkpointing::none;
  /// What is trained, by path; empty: everything.
  std::function<bool(const std::string& path)> trains;
  /// LoRA, as nn::add_lora makes it; 0 = none. Only the adapters are trained then, and the rest is
  /// stored in the format that the model reads.
  std::int64_t lora_rank = 0;
  std::vector<std::string> lora_targets;               ///< names or paths of linears
  std::int64_t bucket_bytes = std::int64_t{25} << 20;  ///< of DdpGradients and ZeRO-1

  // Placement::zero1 and zero2 only; of `zero`, `reductions` counts for single and ddp too:
  int rank = 0;
  optim::ZeroOptions zero;

  // Placement::sharded only, as in FullyShardOptions:
  Reshard reshard = Reshard::always;
  int reshard_ranks = 0;             ///< s of within(s)
  int prefetch_depth = 1;            ///< units gathered ahead; 0 = none
  int in_flight_limit = 0;           ///< gathers; 0 = prefetch_depth
  optim::Offload offload;            ///< of shards to the host
  std::vector<std::string> ignored;  ///< paths of modules or parameters that stay whole
  std::function<bool(const std::string& path)> decays;  ///< weight decay, by path; empty: all alike

  int shards() const { return world_size / replicas; }  ///< S
  /// T of this model.
  std::int64_t length_of(const nn::TransformerConfig& config) const {
    return length == 0 ? config.max_position_embeddings : length;
  }
};

/// Floating-point operations per element of an update by the optimizer of this name in a
/// configuration: those that the kernels of tensor/optimizer*.cpp declare.
double update_flops(std::string_view optimizer);

/// @throws Error if the options do not fit together, or not the model.
void check_options(const nn::TransformerConfig& config, const MemoryOptions& options);

}  // namespace fsdp::estimate
