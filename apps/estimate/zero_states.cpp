#include "estimate/zero_states.h"

#include "paper/zero_walk.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::estimate {
namespace {

constexpr double kFactor = 1.5;  // additional_buffer_factor, of the host
constexpr int kCardsOfNode = 8;

std::int64_t on_host(double nbytes) { return static_cast<std::int64_t>(nbytes * kFactor); }

/// Bytes of an element, of which a rank holds all, and 1/W.
struct Divided {
  std::int64_t whole = 0;
  std::int64_t shared = 0;
};
Divided divided(const optim::Recipe& recipe) {
  const auto p =
      static_cast<std::int64_t>(size_of(recipe.precision.param_dtype_for(DType::float32)));
  const auto g =
      static_cast<std::int64_t>(size_of(recipe.precision.reduce_dtype_for(DType::float32)));
  const std::int64_t steps = 4 + 4 * recipe.optimizer.states();
  switch (paper::zero_stage(recipe.strategy)) {
    case 0:  // of parameters in float32 there is no master; gradients are summed as they are made
      return {2 * p + (p == 4 ? steps - 4 : steps), 0};
    case 1:
      return {p + g, steps};
    case 2:
      return {p, g + steps};
    default:
      return {0, p + g + steps};
  }
}

}  // namespace

std::int64_t paper_states(const optim::Recipe& recipe, std::int64_t numel) {
  const Divided bytes = divided(recipe);
  return bytes.whole * numel + bytes.shared * numel / recipe.ranks;
}

ZeroNeeds zero2_needs(std::int64_t numel, const ZeroCards& cards, bool offloads) {
  const std::int64_t all = std::int64_t{cards.per_node} * cards.nodes;
  const auto n = static_cast<double>(numel);
  if (offloads) {
    return {2 * numel, on_host(n * static_cast<double>(std::max<std::int64_t>(4 * all, 16)))};
  }
  return {2 * numel + 18 * numel / all, on_host(n * 4 * cards.per_node)};
}

ZeroNeeds zero3_needs(std::int64_t numel, std::int64_t largest, const ZeroCards& cards,
                      bool offloads, bool keeps_shards) {
  const std::int64_t all = std::int64_t{cards.per_node} * cards.nodes, layer = 4 * largest;
  if (offloads && keeps_shards) {
    return {layer + 2 * numel / all, on_host(static_cast<double>(numel) * 16 / cards.nodes)};
  }
  if (offloads) return {layer, on_host(static_cast<double>(numel) * 18 / cards.nodes)};
  return {layer + 18 * numel / all, on_host(static_cast<double>(layer) * cards.per_node)};
}

std::vector<StatesLine> states_lines(const EstimatorConfig& config, const EstimateRun& run) {
  if (config.framework != paper::Framework::deepspeed) return {};
  const optim::Recipe& recipe = config.train.recipe;
  const nn::TransformerConfig& model = config.train.model;
  const std::int64_t numel = run.parameters, largest = model.vocab_size * model.hidden_size;
  const int stage = paper::zero_stage(recipe.strategy);
  const bool offloads = recipe.sharding.offload.is_on();
  const ZeroCards cards{std::min(recipe.ranks, kCardsOfNode),
                        (recipe.ranks + kCardsOfNode - 1) / kCardsOfNode};
  std::vector<StatesLine> lines;
  const Divided bytes = divided(recipe);
  std::string sum = bytes.whole > 0 ? fmt::format("{} N", bytes.whole) : "";
  if (bytes.shared > 0) {
    sum += fmt::format("{}{} N / W", sum.empty() ? "" : " + ", bytes.shared);
  }
  if (!offloads) {
    lines.push_back({"the ZeRO paper", paper_states(recipe, numel), 0, sum});
  }
  const auto add = [&](const ZeroNeeds& needs, const char* what) {
    lines.push_back({"DeepSpeed's estimator", needs.device, needs.host, what});
  };
  if (stage == 2) {
    add(zero2_needs(numel, cards, offloads), offloads ? "2 N" : "2 N + 18 N / W");
  }
  if (stage == 3) {
    const bool keeps_shards = !config.train.deepspeed.keeps_shards.empty();
    add(zero3_needs(numel, largest, cards, offloads, keeps_shards),
        !offloads      ? "4 x the largest layer + 18 N / W"
        : keeps_shards ? "4 x the largest layer + 2 N / W"
                       : "4 x the largest layer");
  }
  const IterationMemory& last = run.iterations.back();
  const auto step = std::ranges::find(last.phases, "optimizer", &PhaseMemory::name);
  if (step == last.phases.end()) return lines;
  lines.push_back({"this walk", step->peak.total(), last.host_peak.total() * cards.per_node,
                   "all that is held while the optimizer steps, buckets too"});
  return lines;
}

}  // namespace fsdp::estimate
