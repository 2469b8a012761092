// Which single changes of a configuration lower its peak, and how far.
#include "comm/processes/launch.h"
#include "estimate/second_opinion.h"
#include "paper/memory_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace fsdp::estimate {
namespace {

/// What a change costs, the cheapest first.
enum class Price { traffic, bits, compute, batch, bus, machine, data, training };

struct Change {
  Price price;
  std::string option;  ///< "--training.activation_checkpoint block"
  std::string meaning;
  std::function<void(config::TrainConfig&)> apply;
};

std::int64_t peak_of(const EstimatorConfig& config) {
  return paper::peak_of_training(config.train.model, memory_options(config)).total();
}

/// More than anything has, where it is not known of the framework, or two changes do not fit.
std::int64_t peak_if_known(const EstimatorConfig& config) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  try {
    return paper::unknown_of(memory_options(config)) ? kNever : peak_of(config);
  } catch (const optim::RecipeError&) {
    return kNever;
  }
}

std::int64_t reserved_of(const EstimatorConfig& config, std::int64_t peak, std::int64_t kept) {
  if (config.framework == paper::Framework::unshard) return peak + kept;
  return needed_bytes(config.train.model, memory_options(config)) - paper::kOutsideBytes;
}

std::vector<Change> changes_of(const EstimatorConfig& config) {
  using config::TrainConfig;
  using optim::Checkpointing;
  using optim::Strategy;
  std::vector<Change> changes;
  const auto consider = [&](Price price, const std::string& option, std::string meaning,
                            std::function<void(TrainConfig&)> apply) {
    changes.push_back({price, option.substr(option.find_first_not_of(' ')), std::move(meaning),
                       std::move(apply)});
  };
  const auto& [training, recipe] = std::tie(config.train.training, config.train.recipe);
  const std::int64_t batch = training.local_batch_size;
  const bool is_sharded = recipe.strategy == Strategy::fsdp;
  // The number of micro-steps stays as it is: also where the global batch was given.
  const auto with_global = [&](std::int64_t sequences) {
    return config.train.origins.contains("training.global_batch_size")
               ? fmt::format(" --training.global_batch_size {}", sequences)
               : "";
  };
  if (batch > 1) {
    consider(Price::batch,
             fmt::format("--training.local_batch_size {}", batch / 2) +
                 with_global(config.train.micro_batches() * (batch / 2)),
             "half the sequences of a micro-batch", [batch, &config](TrainConfig& changed) {
               changed.training.local_batch_size = batch / 2;
               changed.training.global_batch_size =
                   config.train.micro_batches() * changed.training.local_batch_size;
             });
  }
  const std::int64_t length = config.train.sequence_length();
  if (length > 1) {
    consider(Price::data, fmt::format("--training.seq_len {}", length / 2),
             "half the tokens of a sequence",
             [length](TrainConfig& changed) { changed.training.seq_len = length / 2; });
  }
  const bool is_every = recipe.checkpoint_every == 1;
  const std::string every = is_every ? "" : " --training.checkpoint_every 1";
  const auto checkpoint = [&](Checkpointing to, const char* value, const char* meaning) {
    if (config.train.recipe.checkpointing == to && is_every) return;
    consider(Price::compute, config.option("training.activation_checkpoint", value) + every,
             meaning, [to](TrainConfig& changed) {
               changed.recipe.checkpointing = to;
               changed.recipe.checkpoint_every = 1;
             });
  };
  checkpoint(Checkpointing::operations, "operations",
             "backward computes half of a block's products again, and keeps the results of the "
             "rest");
  checkpoint(Checkpointing::inside, "block",
             "backward computes the forward of a block again, and keeps only its input");
  if (recipe.precision.param_dtype == DType::float32) {
    consider(Price::bits, "--training.mixed_precision_param bfloat16",
             "the model computes in 16 bits",
             [](TrainConfig& changed) { changed.recipe.precision.param_dtype = DType::bfloat16; });
  }
  if (recipe.precision.reduce_dtype == DType::float32) {
    consider(Price::bits, "--training.mixed_precision_reduce bfloat16",
             "gradients are summed in 16 bits",
             [](TrainConfig& changed) { changed.recipe.precision.reduce_dtype = DType::bfloat16; });
  }
  if (!is_sharded && recipe.ranks > 1) {
    std::string moved;
    if (recipe.sharding.offload.optimizer) {
      moved = " --parallel.offload_optimizer false --parallel.offload_params true";
    }
    if (recipe.sharding.offload.grads) moved += " --parallel.offload_grads true";
    consider(
        Price::traffic,
        config.option("parallel.strategy", "fsdp") + config.world_options(recipe.ranks, 1) + moved,
        "a rank holds 1/W of the model", [](TrainConfig& changed) {
          optim::Offload& offload = changed.recipe.sharding.offload;
          changed.recipe.strategy = Strategy::fsdp;
          offload.params = std::exchange(offload.optimizer, false);
        });
  }
  if (recipe.replicas > 1) {
    consider(Price::traffic, config.world_options(recipe.ranks, 1),
             "one set of shards over all ranks",
             [](TrainConfig& changed) { changed.recipe.replicas = 1; });
  }
  if (recipe.ranks > 1 && !processes::launched()) {  // else the launcher decides how many there are
    consider(Price::machine,
             config.world_options(std::int64_t{2} * recipe.ranks, recipe.replicas) +
                 with_global(2 * training.global_batch_size),
             "twice the ranks, each with the same micro-batch", [](TrainConfig& changed) {
               changed.recipe.ranks *= 2;
               changed.training.global_batch_size *= 2;
             });
  }
  if (is_sharded &&
      recipe.sharding.reshard_after_forward.kind != ReshardAfterForward::Kind::always) {
    consider(Price::traffic, "--parallel.reshard_after_forward true",
             "units are freed after their forward", [](TrainConfig& changed) {
               changed.recipe.sharding.reshard_after_forward = ReshardAfterForward::always();
             });
  }
  if (is_sharded && recipe.sharding.prefetch_depth > 0 &&
      config.framework == paper::Framework::unshard) {
    consider(Price::traffic,
             fmt::format("--parallel.prefetch_depth {}", recipe.sharding.prefetch_depth - 1),
             "one unit less is gathered ahead",
             [](TrainConfig& changed) { --changed.recipe.sharding.prefetch_depth; });
  }
  if (is_sharded && !recipe.sharding.offload.grads) {
    consider(Price::bus, "--parallel.offload_params true --parallel.offload_grads true",
             "shards, gradients and state are in the host's memory", [](TrainConfig& changed) {
               changed.recipe.sharding.offload.params = changed.recipe.sharding.offload.grads =
                   true;
               changed.deepspeed.keeps_shards.clear();
             });
  }
  const bool moves_sums = recipe.strategy == Strategy::zero2;
  if (recipe.is_zero() &&
      !(moves_sums ? recipe.sharding.offload.grads : recipe.sharding.offload.optimizer)) {
    consider(Price::bus,
             moves_sums ? "--parallel.offload_optimizer true --parallel.offload_grads true"
                        : "--parallel.offload_optimizer true",
             "what a rank owns is stepped in the host's memory",
             [moves_sums](TrainConfig& changed) {
               changed.recipe.sharding.offload = {.grads = moves_sums, .optimizer = true};
             });
  }
  if (config.train.training.no_sync) {
    consider(Price::traffic, "--training.no_sync false",
             "gradients are reduced in every micro-step",
             [](TrainConfig& changed) { changed.training.no_sync = false; });
  }
  if (!recipe.has_lora()) {
    consider(Price::training, "--lora.rank 8", "only adapters are trained",
             [](TrainConfig& changed) { changed.recipe.lora.rank = 8; });
  }
  if (recipe.optimizer.states() > 1) {
    consider(Price::training, "--optimizer.name sgd --optimizer.momentum 0.9",
             "one state per parameter, not two", [](TrainConfig& changed) {
               changed.recipe.optimizer.name = "sgd";
               changed.recipe.optimizer.options.momentum = 0.9;
             });
  }
  return changes;
}

EstimatorConfig changed_by(const EstimatorConfig& config,
                           const std::vector<const Change*>& changes) {
  EstimatorConfig changed = config;
  for (const Change* each : changes) each->apply(changed.train);
  changed.train.settle();
  return changed;
}

}  // namespace

std::vector<Saving> savings_of(const EstimatorConfig& config) {
  std::vector<Saving> savings;
  const std::int64_t now = peak_of(config);
  for (const Change& each : changes_of(config)) {
    const std::int64_t peak = peak_if_known(changed_by(config, {&each}));
    if (peak < now) savings.push_back({each.option, each.meaning, peak, now - peak});
  }
  std::ranges::stable_sort(savings, std::greater<>(), &Saving::saved);
  return savings;
}

std::optional<Remedy> remedy_of(const EstimatorConfig& config, std::int64_t memory,
                                std::int64_t kept) {
  std::vector<Change> changes = changes_of(config);
  // What makes another training is none.
  std::erase_if(changes, [](const Change& each) { return each.price >= Price::data; });
  std::ranges::stable_sort(changes, {}, &Change::price);
  const auto fits = [&](const std::vector<const Change*>& chosen) -> std::optional<Remedy> {
    const EstimatorConfig changed = changed_by(config, chosen);
    Remedy remedy{"", peak_if_known(changed)};
    if (remedy.peak > memory) return std::nullopt;
    remedy.reserved = reserved_of(changed, remedy.peak, kept);
    if (remedy.reserved > memory) return std::nullopt;
    for (const Change* each : chosen) remedy.options += " " + each->option;
    return remedy;
  };
  for (const Change& each : changes) {
    if (auto found = fits({&each})) return found;
  }
  for (std::size_t second = 1; second < changes.size(); ++second) {
    for (std::size_t first = 0; first < second; ++first) {
      if (auto found = fits({&changes[first], &changes[second]})) return found;
    }
  }
  return std::nullopt;
}

}  // namespace fsdp::estimate
