#include "estimate/estimate_run.h"

#include "base/check.h"
#include "paper/rough_sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include <string>

namespace fsdp::estimate {
namespace {

constexpr double kMost = 0x1p62;

/// Units that compute, in the record of all micro-batches. Each takes some 10 kB there.
constexpr std::int64_t kMostRecorded = 50'000;

double real(std::int64_t value) { return static_cast<double>(value); }

/// Upper bounds of what one rank holds and does, in a model without shards.
struct Bounds {
  double parameters = 0;
  double rows = 0;         ///< tokens of a micro-batch
  double row = 0;          ///< bytes that the tape keeps per token, and their gradients
  double flops = 0;        ///< of two iterations
  double micro_steps = 0;  ///< of two iterations

  double of_model() const { return 32 * parameters; }  // masters, gradients, two states, copies
  double of_batch() const { return rows * row; }
  double picoseconds() const {
    // Every byte is touched a few times in each micro-step, at the rate of the slowest link.
    return flops * machine().ps_per_flop +
           8 * micro_steps *
               (of_model() * machine().link_ps_per_byte + of_batch() * machine().ps_per_byte);
  }
};

Bounds bounds_of(const config::TrainConfig& config) {
  const nn::TransformerConfig& model = config.model;
  const double layers = real(model.num_hidden_layers);
  const paper::RoughSizes sizes = paper::rough_sizes(
      model, config.training.local_batch_size, config.sequence_length(), config.recipe.lora.rank);
  Bounds bounds;
  bounds.parameters =
      sizes.parameters + layers * real(config.recipe.lora.rank) * real(config.lora_widths());
  bounds.rows = sizes.tokens;
  bounds.row = 8 * (layers * sizes.in_block + sizes.behind);
  bounds.micro_steps = kIterations * real(config.micro_batches()) / real(config.recipe.ranks);
  // Forward, backward, and forward again where blocks are checkpointed.
  bounds.flops = bounds.micro_steps * (8 * bounds.rows * bounds.parameters + 4 * sizes.attention);
  return bounds;
}

void check_record(const config::TrainConfig& config) {
  const config::TrainingConfig& training = config.training;
  const std::int64_t micro_step = training.local_batch_size * config.recipe.ranks;
  const std::int64_t units = kIterations * (config.model.num_hidden_layers + 2);
  const std::int64_t most = std::max<std::int64_t>(kMostRecorded / units, 1);
  if (training.global_batch_size / micro_step <= most) return;
  throw InputError(fmt::format(
      "{}: is {}, which is {} micro-batches per rank, and an estimate records each of their {} "
      "layers; use at most {}",
      config.origin("training.global_batch_size"), training.global_batch_size,
      training.global_batch_size / micro_step, config.model.num_hidden_layers, most * micro_step));
}

}  // namespace

void check_sizes(const config::TrainConfig& config) {
  const Bounds bounds = bounds_of(config);
  const auto refuse = [&](const std::string& key, const std::string& what, double amount,
                          const std::string& unit) {
    throw InputError(fmt::format(
        "{}: {} take up to {:.2g} {}, and only what is below 2^62 = {:.2g} is counted exactly; use "
        "a smaller batch, a shorter sequence or a smaller model",
        config.origin(key), what, amount, unit, kMost));
  };
  if (bounds.of_model() > kMost) {
    refuse("model.hidden_size",
           fmt::format("up to {:.2g} parameters, with gradients and state,", bounds.parameters),
           bounds.of_model(), "bytes");
  }
  const std::string batch = fmt::format("micro-batches of {} sequences of {} tokens",
                                        config.training.local_batch_size, config.sequence_length());
  if (bounds.of_batch() > kMost) {
    refuse("training.local_batch_size", batch, bounds.of_batch(), "bytes");
  }
  if (bounds.picoseconds() > kMost) {
    refuse("training.global_batch_size", fmt::format("two iterations with {}", batch),
           bounds.picoseconds(), "picoseconds on the modeled machine");
  }
  check_record(config);
}

}  // namespace fsdp::estimate
