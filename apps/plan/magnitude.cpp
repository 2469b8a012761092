#include "plan/evaluator.h"

#include "base/check.h"
#include "paper/rough_sizes.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::plan {

using paper::MemoryOptions;

namespace {

constexpr double kMostMagnitude = 0x1p62;

double real(std::int64_t value) { return static_cast<double>(value); }

paper::RoughSizes sizes_of(const nn::TransformerConfig& model, const MemoryOptions& options) {
  return paper::rough_sizes(model, options.batch, options.length_of(model), 0);
}

// What a micro-batch keeps for backward.
double kept(const nn::TransformerConfig& model, const paper::RoughSizes& sizes) {
  return sizes.tokens * (real(model.num_hidden_layers) * sizes.in_block + sizes.behind);
}

}  // namespace

void check_bytes(const nn::TransformerConfig& model, const MemoryOptions& options) {
  const paper::RoughSizes sizes = sizes_of(model, options);
  const double nbytes =
      4 * (3 + real(options.recipe.optimizer.states())) * sizes.parameters + 4 * kept(model, sizes);
  if (nbytes < kMostMagnitude) return;
  throw InputError(fmt::format(
      "training.local_batch_size: {} sequences on each of {} ranks take about {:.1e} bytes per "
      "rank, at most {:.1e} can be counted; use a smaller batch, seq_len or model",
      options.batch, options.recipe.ranks, nbytes, kMostMagnitude));
}

void check_time(const nn::TransformerConfig& model, const MemoryOptions& options,
                const CostModel& machine) {
  const paper::RoughSizes sizes = sizes_of(model, options);
  const double steps = real(options.recipe.micro_steps);
  // Forward, backward and recomputation are four forwards.
  const double flops = steps * 4 * (2 * sizes.parameters * sizes.tokens + sizes.attention);
  const double moved = steps * 4 * (8 * kept(model, sizes) + 8 * sizes.parameters);
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
