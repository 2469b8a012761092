/// @file
/// @ingroup optim
/// Recipe: how a model is trained, whatever the model, its data and the machine are.
#pragma once

#include "base/check.h"
#include "base/lora.h"
#include "optim/mixed_precision.h"
#include "optim/offload.h"
#include "optim/reduction.h"
#include "optim/reshard.h"
#include "optim/step_plan.h"
#include "tensor/optimizers.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::optim {

/// Where parameters, gradients and optimizer state live.
enum class Strategy {
  single,  ///< whole, in one process (LocalGradients)
  ddp,     ///< whole on every rank (parallel::DdpGradients)
  zero1,   ///< the same, but a rank has optimizer state, and masters of another format than the
           ///< model reads, only of what it owns
  zero2,   ///< the same, and it keeps gradients only of what it owns
  fsdp,    ///< 1/S on every rank (fully_shard)
};
const char* name_of(Strategy strategy);  ///< "zero1"

/// Where the blocks of a model are checkpointed (task8_beyond/checkpoint.h).
enum class Checkpointing {
  none,
  inside,      ///< FSDP(checkpoint(block)); without FSDP, checkpoint(block)
  operations,  ///< inside, but the results of some operations are kept (Recipe::kept_operations)
  around,      ///< checkpoint(FSDP(block)); fsdp only
};

/// Of Strategy::fsdp, as in FullyShardOptions; offload also of zero1 and zero2.
struct Sharding {
  ReshardAfterForward reshard_after_forward = {};
  int prefetch_depth = 1;                 ///< units gathered ahead; 0 = none
  int in_flight_limit = 0;                ///< gathers in flight; 0 = prefetch_depth
  Offload offload = {};                   ///< what is on the host
  std::vector<std::string> ignored = {};  ///< paths of modules or parameters that stay whole
};

/// An optimizer of the table in tensor/optimizers.cpp.
struct OptimizerChoice {
  std::string name = "adamw";
  ops::OptimizerOptions options = {};
  bool decay_norms = true;  ///< false: weight decay spares the weights of the norms

  /// Tensors of state per parameter, as the table has them.
  int states() const;
  /// Whether the optimizer of this name looks at a key, such as "optimizer.eps".
  bool looks_at(const std::string& key) const;
  /// Whether weight decay applies to the parameter of this path.
  bool decays(const std::string& path) const;
};

/// Why a recipe is refused, in two parts, so that a configuration can put the key's place between.
class RecipeError : public InputError {
 public:
  /// `key` as a configuration spells it, "parallel.ranks"; `why` follows it: "is 3, …".
  RecipeError(std::string key, std::string why)
      : InputError(key + ": " + why), key_(std::move(key)), why_(std::move(why)) {}
  const std::string& key() const { return key_; }
  const std::string& why() const { return why_; }

 private:
  std::string key_;
  std::string why_;
};

/// Everything that decides which numbers a step computes and where they are, except the model and
/// the data. It is data alone: two equal recipes train alike. A strategy looks only at what is its
/// own. The loss scale is no part of it, because it changes from step to step.
struct Recipe {
  Strategy strategy = Strategy::single;
  int ranks = 1;                      ///< W
  int replicas = 1;                   ///< R of a mesh (fsdp only); each has W / R shards
  int micro_steps = 1;                ///< M: micro-batches of a rank and step
  int micro_steps_per_reduction = 1;  ///< L: 1, or M under no_sync
  MixedPrecision precision = {};      ///< over masters of float32
  Sharding sharding = {};
  Checkpointing checkpointing = Checkpointing::none;
  int checkpoint_every = 1;  ///< n: of n blocks, the last one is checkpointed
  /// Products and attention of a block, as KeptResults names them: attention and, as in torchtitan,
  /// every second product. Of down_proj's result, no backward has need.
  std::vector<std::string> kept_operations = {"q_proj", "v_proj", "self_attn", "gate_proj"};
  std::size_t bucket_bytes = kBucketBytes;  ///< ddp, zero1: gradients reduced together
  ZeroOptions zero = {};  ///< zero1, zero2; of these, `reductions` counts for single and ddp too
  OptimizerChoice optimizer = {};
  double clip = 0;        ///< largest norm of the whole gradient; 0 = off
  bool prescale = false;  ///< plan() scales gradients before they are summed; see prescale_of()
  Lora lora = {};
  std::vector<std::string> frozen = {};   ///< path prefixes of what is not trained,
  std::vector<std::string> trained = {};  ///< and of exceptions from that and from LoRA

  int shards() const { return ranks / replicas; }  ///< S, with fsdp
  bool is_zero() const { return strategy == Strategy::zero1 || strategy == Strategy::zero2; }
  bool trains_all() const { return !has_lora() && frozen.empty(); }
  bool has_lora() const { return lora.rank > 0; }
  bool checkpoints_blocks() const { return checkpointing != Checkpointing::none; }
  bool checkpoints_block(std::int64_t index) const {
    return checkpoints_blocks() && (index + 1) % checkpoint_every == 0;
  }
  /// Whether the parameter of this path is trained: as `trained`, else `frozen` has it; if neither
  /// names it, with LoRA only an adapter is.
  bool trains(const std::string& path) const;
  /// How a rank takes its share of a step's micro-batches.
  StepPlan plan() const;
  /// Whether a TrainedModel passes over the sums of gradients to make means of them. It does where
  /// J · loss_scale is below 1. Else the optimizer divides by it as it reads them.
  bool has_mean_pass(const StepPlan& step) const;
  bool has_mean_pass() const { return has_mean_pass(plan()); }
  /// @throws RecipeError for the first values that do not fit together.
  void validate() const;
};

}  // namespace fsdp::optim
