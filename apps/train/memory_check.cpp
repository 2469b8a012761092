#include "train/memory_check.h"

#include "base/check.h"
#include "comm/processes/launch.h"
#include "device/context.h"
#include "paper/rough_sizes.h"
#include "train/bound.h"
#include "train/ranks.h"
#include "train/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>
#include <system_error>
#include <vector>

namespace fsdp::train {
namespace {

std::int64_t ranks_on_this_machine(const config::TrainConfig& config) {
  const auto launch = processes::launched();
  const std::int64_t all = config.recipe.ranks;
  return launch ? std::min<std::int64_t>(launch->size_here, all) : all;
}

constexpr double kMostExact = 1e15;  // bytes; below it no term of the formula leaves 64 bits
constexpr double kMostShown = 9e18;

// The largest terms of the formula for all ranks, as a real number: it may be absurd.
double rough_bytes(const config::TrainConfig& config, Purpose purpose) {
  const bool trains = purpose == Purpose::training;
  const nn::TransformerConfig& model = config.model;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const paper::RoughSizes sizes = paper::rough_sizes(
      model, config.training.local_batch_size, config.sequence_length(), config.recipe.lora.rank);
  const double adapters =
      real(model.num_hidden_layers) * real(config.recipe.lora.rank) * real(config.lora_widths());
  const double trained = config.recipe.has_lora() ? adapters : sizes.parameters;
  const double element = real(
      static_cast<std::int64_t>(size_of(config.recipe.precision.param_dtype_for(DType::float32))));
  const auto states = static_cast<double>(config.recipe.optimizer.states());
  // Masters, and in a training their gradients and the state; what is frozen has no master.
  const double owners = config.recipe.is_zero() ? real(config.recipe.ranks) : 1;
  const bool owns_gradients =
      config.recipe.strategy == optim::Strategy::zero2 && !config.training.no_sync;
  const double gradients = owns_gradients ? 1 / owners : 1;
  const double masters = element < 4 ? 1 / owners : 1;
  const double copies = 4 * (masters + (trains ? gradients + states / owners : 0)) * trained +
                        (config.recipe.has_lora() ? element * sizes.parameters : 0);
  const double ranks = real(config.recipe.ranks);
  const double held =
      config.recipe.strategy == optim::Strategy::fsdp
          ? copies / real(config.recipe.shards()) + 2 * element * std::max(sizes.block, sizes.table)
          : copies + (element < 4 ? element * trained : 0);
  const double blocks = trains ? real(model.num_hidden_layers) : 1;  // at a time
  const double of_blocks = config.recipe.checkpoints_blocks()
                               ? blocks * real(model.hidden_size) + sizes.in_block
                               : blocks * sizes.in_block;
  const double activations = element * sizes.tokens * (of_blocks + sizes.behind);
  const double positions = 4 * real(model.max_position_embeddings) * real(model.head_dim());
  return ranks * (held + activations + positions);
}

// Text is read once as bytes and kept as tokens of two; a token file is only kept.
double data_bytes(const config::TrainConfig& config, const std::string& path) {
  std::error_code ignored;
  const auto nbytes = std::filesystem::file_size(path, ignored);
  return ignored ? 0 : static_cast<double>(nbytes) * (config.data.is_tokens() ? 1 : 3);
}

// What is not read costs nothing.
double training_bytes(const config::TrainConfig& config, Purpose purpose) {
  return purpose == Purpose::training ? data_bytes(config, config.data.path) : 0;
}
double validation_bytes(const config::TrainConfig& config, Purpose purpose) {
  const bool is_read = purpose == Purpose::evaluation || config.training.eval_every > 0;
  return is_read ? data_bytes(config, config.data.validation) : 0;
}

// Each process of this machine reads all of it.
double data_bytes_here(const config::TrainConfig& config, Purpose purpose) {
  const auto launch = processes::launched();
  return (training_bytes(config, purpose) + validation_bytes(config, purpose)) *
         (launch ? launch->size_here : 1);
}

struct Saving {
  std::string key;
  std::string change;  // "half the model.hidden_size"
  double bytes = 0;    // needed with it
};

// The one change that leaves least; of several that are nearly as good, one that the user has made.
// Unlike the estimate's savings, it changes the model too, and counts all ranks here, roughly:
// sizes may be absurd.
Saving best_saving(const config::TrainConfig& config, Purpose purpose) {
  std::vector<Saving> savings;
  const auto consider = [&](const std::string& key, const std::string& change,
                            const config::TrainConfig& changed) {
    const bool is_set = !config.from.empty() && key.starts_with("model.");  // by model.from
    if (!is_set) savings.push_back({key, change, rough_bytes(changed, purpose)});
  };
  const auto halve = [&](const std::string& key, auto field_of) {
    config::TrainConfig changed = config;
    changed.training.seq_len = config.sequence_length();
    auto* const field = field_of(changed);
    *field = (*field + 1) / 2;
    consider(key, "half the " + key, changed);
  };
  using Config = config::TrainConfig;
  halve("training.local_batch_size", [](Config& c) { return &c.training.local_batch_size; });
  halve("training.seq_len", [](Config& c) { return &c.training.seq_len; });
  halve("model.vocab_size", [](Config& c) { return &c.model.vocab_size; });
  halve("model.hidden_size", [](Config& c) { return &c.model.hidden_size; });
  halve("model.num_hidden_layers", [](Config& c) { return &c.model.num_hidden_layers; });
  halve("model.intermediate_size", [](Config& c) { return &c.model.intermediate_size; });
  halve("model.max_position_embeddings",
        [](Config& c) { return &c.model.max_position_embeddings; });
  // Of ranks with a card each, fewer would leave each of them with more.
  if (config.training.device != "cuda" || accelerator()->count() < ranks_on_this_machine(config)) {
    halve("parallel.ranks", [](Config& c) { return &c.recipe.ranks; });
  }
  if (config.recipe.replicas > 1) {
    halve("parallel.data_parallel_replicate_degree", [](Config& c) { return &c.recipe.replicas; });
  }
  config::TrainConfig sharded = config;
  if (config.recipe.strategy != optim::Strategy::single)
    sharded.recipe.strategy = optim::Strategy::fsdp;
  consider("parallel.strategy", "strategy fsdp", sharded);
  const auto best = std::ranges::min_element(savings, {}, &Saving::bytes);
  const double good_enough = best->bytes + 0.1 * (rough_bytes(config, purpose) - best->bytes);
  const auto given = std::ranges::find_if(savings, [&](const Saving& each) {
    return each.bytes <= good_enough && config.origins.contains(each.key);
  });
  return given != savings.end() ? *given : *best;
}

std::string show(double nbytes) {
  return show_bytes(static_cast<std::int64_t>(std::min(nbytes, kMostShown)));
}

// What changes no result: to compute activations again, if that saves much.
std::string with_checkpoints(const config::TrainConfig& config, Purpose purpose, double share,
                             double data) {
  config::TrainConfig checkpointed = config;
  checkpointed.recipe.checkpointing = optim::Checkpointing::inside;
  checkpointed.recipe.checkpoint_every = 1;
  const double nbytes = rough_bytes(checkpointed, purpose);
  if (purpose != Purpose::training || nbytes > 0.9 * rough_bytes(config, purpose)) return {};
  return fmt::format(", with training.activation_checkpoint block it is {}",
                     show(nbytes * share + data));
}

// By all ranks together.
double needed(const config::TrainConfig& config, Purpose purpose, paper::MemorySpace space) {
  const double rough = rough_bytes(config, purpose);
  // It counts as if nothing were offloaded, so the cards are asked for all of it.
  if (rough > kMostExact) return space == paper::MemorySpace::device ? rough : 0;
  config::TrainConfig shorter = config;
  const std::int64_t micro_step = config.training.local_batch_size * config.recipe.ranks;
  shorter.training.global_batch_size = std::min(config.training.global_batch_size, 16 * micro_step);
  shorter.settle();
  const std::vector<std::int64_t> bounds = bound_bytes_by_rank(shorter, purpose, space);
  return std::accumulate(bounds.begin(), bounds.end(), 0.0);
}

// Of the sum: with ZeRO, the ranks here may own a little more than others.
double share_of_this_machine(const config::TrainConfig& config) {
  return static_cast<double>(ranks_on_this_machine(config)) /
         static_cast<double>(config.recipe.ranks);
}

/// What shares the memory of this machine.
struct Here {
  std::int64_t ranks;
  double share;  // of all ranks
  double work;   // bytes of these ranks
  double data;   // bytes
};

Here here(const config::TrainConfig& config, Purpose purpose) {
  const double work = needed(config, purpose, paper::MemorySpace::device);
  if (config.training.device == "cuda") {
    const double scratch = static_cast<double>(config.recipe.ranks) *
                           static_cast<double>(Context::Options{}.workspace_nbytes);
    // The data stay in the memory of the host.
    return {.ranks = config.recipe.ranks, .share = 1, .work = work + scratch, .data = 0};
  }
  const double share = share_of_this_machine(config);
  return {.ranks = ranks_on_this_machine(config),
          .share = share,
          .work = work * share,
          .data = data_bytes_here(config, purpose)};
}

[[noreturn]] void refuse_data(const config::TrainConfig& config, const program::FreeMemory& there,
                              Purpose purpose, double data) {
  const std::string &path = config.data.path, &validation = config.data.validation;
  const bool is_path = training_bytes(config, purpose) >= validation_bytes(config, purpose);
  throw InputError(
      fmt::format("{}: {}: reading it takes {}, and there are {} ({}); use less data, or set "
                  "parallel.check_memory to false to try",
                  is_path                          ? "data.path"
                  : purpose == Purpose::evaluation ? "--eval"
                                                   : "data.validation",
                  is_path ? path : validation, show(data), show_bytes(there.nbytes), there.limit));
}

// With cards: that the memory of the host can hold the data, and what is offloaded.
void check_host_memory(const config::TrainConfig& config, const program::FreeMemory& there,
                       Purpose purpose) {
  const optim::Offload& offload = config.recipe.sharding.offload;
  const double data = data_bytes_here(config, purpose);
  const double offloaded = offload.is_on() ? share_of_this_machine(config) *
                                                 needed(config, purpose, paper::MemorySpace::host)
                                           : 0;
  if (offloaded + data <= static_cast<double>(there.nbytes)) return;
  if (data > offloaded) refuse_data(config, there, purpose, data);
  throw InputError(fmt::format(
      "{}: the memory of the host must hold {} of what is offloaded and {} of data, and there are "
      "{} ({}); leave more on the cards, or set parallel.check_memory to false to try",
      offload.params ? "parallel.offload_params" : "parallel.offload_optimizer", show(offloaded),
      show(data), show_bytes(there.nbytes), there.limit));
}

}  // namespace

program::FreeMemory free_memory(const config::TrainConfig& config) {
  if (config.training.device != "cuda") return program::free_memory();
  const int count = accelerator()->count();
  const std::int64_t ranks = config.recipe.ranks;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  int fullest = 0;
  // The others' memory would have to be opened, and some of it is gone then.
  for (const int card : cards_of_this_process(ranks, false)) {
    const std::int64_t free = accelerator()->memory_of(card).free;
    if (free < least) fullest = card;
    least = std::min(least, free);
  }
  // Ranks take the cards in turn; a card may have one rank more than another.
  const std::int64_t of_a_card = processes::launched() ? 1 : (ranks + count - 1) / count;
  return {least / of_a_card * ranks,
          fmt::format("free memory of cuda:{}, which {} rank{} share{}", fullest, of_a_card,
                      of_a_card == 1 ? "" : "s", of_a_card == 1 ? "s" : "")};
}

std::int64_t needed_bytes(const config::TrainConfig& config, Purpose purpose) {
  const Here here = train::here(config, purpose);
  return static_cast<std::int64_t>(std::min(here.work + here.data, kMostShown));
}

void check_memory(const config::TrainConfig& config, const program::FreeMemory& there,
                  Purpose purpose, const program::FreeMemory& of_host) {
  if (!config.parallel.check_memory) return;
  if (config.training.device == "cuda") check_host_memory(config, of_host, purpose);
  const auto most = static_cast<double>(there.nbytes);
  const auto [ranks, share, held, data] = here(config, purpose);
  if (held + data <= most) return;
  const bool evaluates = purpose == Purpose::evaluation;
  if (data > held) refuse_data(config, there, purpose, data);
  const Saving best = best_saving(config, purpose);
  throw InputError(fmt::format(
      "{}: this {} needs {} for its {} rank{}, and there are {} ({}); {} would save most (then it "
      "is {}){}, or set parallel.check_memory to false to try",
      best.key, evaluates ? "evaluation" : "training", show(held + data), ranks,
      ranks == 1 ? "" : "s", show_bytes(there.nbytes), there.limit, best.change,
      show(best.bytes * share + data), with_checkpoints(config, purpose, share, data)));
}

}  // namespace fsdp::train
