#include "plan/magnitude.h"

#include "base/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::plan {

using paper::MemoryOptions;

namespace {

constexpr double kMostMagnitude = 0x1p62;

double real(std::int64_t value) { return static_cast<double>(value); }

// The letters are those of estimate/activation_table.h.
struct Rough {
  double parameters = 0;
  double tokens = 0;      // of a micro-batch
  double attention = 0;   // flop of the scores and their products, forward, of a micro-batch
  double activation = 0;  // elements that a micro-batch keeps
};

Rough rough(const nn::TransformerConfig& model, const MemoryOptions& options) {
  const double d = real(model.hidden_size), layers = real(model.num_hidden_layers);
  const double width = real(model.num_attention_heads) * real(model.head_dim());
  const double f = real(model.intermediate_size), v = real(model.vocab_size);
  const double length = real(options.length_of(model));
  Rough sizes;
  sizes.parameters = 2 * v * d + layers * (4 * d * width + 3 * d * f + 2 * d);
  sizes.tokens = real(options.batch) * length;
  sizes.attention = 4 * sizes.tokens * length * width * layers;
  sizes.activation = sizes.tokens * (layers * (4 * d + 4 * width + 3 * f) + 2 * v + 2 * d);
  return sizes;
}

}  // namespace

void check_bytes(const nn::TransformerConfig& model, const MemoryOptions& options) {
  const Rough sizes = rough(model, options);
  const double nbytes =
      4 * (3 + real(options.recipe.optimizer.states())) * sizes.parameters + 4 * sizes.activation;
  if (nbytes < kMostMagnitude) return;
  throw InputError(fmt::format(
      "training.local_batch_size: {} sequences on each of {} ranks take about {:.1e} bytes per "
      "rank, at most {:.1e} can be counted; use a smaller batch, seq_len or model",
      options.batch, options.recipe.ranks, nbytes, kMostMagnitude));
}

void check_time(const nn::TransformerConfig& model, const MemoryOptions& options,
                const CostModel& machine) {
  const Rough sizes = rough(model, options);
  const double steps = real(options.recipe.micro_steps);
  // Forward, backward and recomputation are four forwards.
  const double flops = steps * 4 * (2 * sizes.parameters * sizes.tokens + sizes.attention);
  const double moved = steps * 4 * (8 * sizes.activation + 8 * sizes.parameters);
  const double hops = steps * 4 * real(model.num_hidden_layers + 2) * real(options.recipe.ranks);
  const double link = std::max(machine.link_ps_per_byte, machine.far_link_ps_per_byte);
  const double alpha = real(std::max(machine.alpha_ps, machine.far_alpha_ps));
  const double per_byte = std::max(machine.ps_per_byte, machine.host_ps_per_byte);
  const double copied = 12 * steps * sizes.parameters;  // over the link, and over the bus
  const double per_flop = std::max(machine.ps_per_flop, machine.ps_per_flop_16);
  const double ps = flops * per_flop + moved * per_byte + hops * alpha +
                    copied * (link + machine.bus_ps_per_byte);
  if (ps < kMostMagnitude) return;
  throw InputError(fmt::format(
      "the time of a step: {} micro-batches of {} sequences on {} ranks take about {:.1e} ps, at "
      "most {:.1e} (53 days) can be counted; give a faster --flops, --hbm, --link, --latency or "
      "--bus, or a smaller batch",
      options.recipe.micro_steps, options.batch, options.recipe.ranks, ps, kMostMagnitude));
}

}  // namespace fsdp::plan
