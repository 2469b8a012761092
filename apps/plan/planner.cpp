#include "plan/planner.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/output_file.h"
#include "paper/time_formula.h"
#include "plan/plan.h"
#include "plan/quantity.h"
#include "plan/sweep.h"
#include "plan/which_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace fsdp::plan {

using paper::MemoryOptions;

namespace {

/// Sequences per rank and step, if nobody says how many.
constexpr std::int64_t kSequencesPerRank = 8;

std::int64_t memory_of(const PlannerLine& line, const char* mode) {
  if (!line.memory) {
    throw InputError(fmt::format("{}: needs the memory of a device; add --memory 80GB", mode));
  }
  return parse_bytes("--memory", *line.memory);
}

void refuse(bool is_refused, const char* message) {
  if (is_refused) throw InputError(message);
}

void check_line(const PlannerLine& line) {
  const int modes = int{line.plan} + int{line.which_strategy} + int{line.largest.has_value()} +
                    int{line.sweep.has_value()};
  refuse(modes > 1, "--plan, --largest, --sweep, --which-strategy: give one of them");
  refuse(line.format == "json" && (line.largest || line.which_strategy),
         "--format: json is printed by --plan and --sweep only; leave it out");
  refuse(line.svg && line.svg->empty(), "--svg: is empty; give a path");
}

/// W to choose from. For each, thousands of configurations are evaluated.
std::vector<std::int64_t> planned_ranks(const PlannerLine& line, const MemoryOptions& base) {
  constexpr std::int64_t kMost = 1 << 14;
  const bool is_configured = std::ranges::find(line.given, "parallel.ranks") != line.given.end();
  const std::string otherwise = is_configured ? std::to_string(base.recipe.ranks) : "1..64";
  std::vector<std::int64_t> ranks = parse_range("--ranks", line.ranks.value_or(otherwise));
  if (ranks.back() <= kMost) return ranks;
  throw InputError(
      fmt::format("--ranks: {} are too many to plan for; use at most {}", ranks.back(), kMost));
}

/// How long a plan takes grows with the layers of every model that it evaluates.
void check_layers(const nn::TransformerConfig& model, std::size_t worlds) {
  constexpr std::size_t kMost = 2000;
  const auto layers = static_cast<std::size_t>(model.num_hidden_layers);
  if (layers * worlds <= kMost) return;
  throw InputError(fmt::format(
      "--plan: {} layers for each of {} numbers of ranks are too many to plan for, and {} in all "
      "are the most; use a model with fewer layers, or fewer --ranks",
      layers, worlds, kMost));
}

/// What the configuration says of choices that are the plan's, as a line; "" if nothing.
std::string passed_over(const std::vector<std::string>& given) {
  static constexpr std::array kChosen{"parallel.strategy",
                                      "parallel.data_parallel_replicate_degree",
                                      "parallel.reshard_after_forward",
                                      "parallel.prefetch_depth",
                                      "parallel.offload_params",
                                      "parallel.offload_optimizer",
                                      "parallel.offload_grads",
                                      "training.activation_checkpoint",
                                      "training.mixed_precision_param",
                                      "training.mixed_precision_reduce",
                                      "training.local_batch_size",
                                      "training.no_sync"};
  std::string keys;
  for (const char* key : kChosen) {
    if (std::ranges::find(given, key) == given.end()) continue;
    keys += (keys.empty() ? "" : ", ") + std::string(key);
  }
  return keys.empty() ? "" : "chosen by the plan, not by the configuration: " + keys + "\n";
}

ModeOutput plan(const PlannerLine& line, Evaluator evaluator, const std::string& model_name,
                const MemoryOptions& base) {
  PlanRequest request{.model_name = model_name,
                      .base = base,
                      .memory = memory_of(line, "--plan"),
                      .ranks = planned_ranks(line, base),
                      .has_bus = line.machine.bus.has_value(),
                      .ranks_per_box = line.machine.box};
  request.global_batch = kSequencesPerRank * request.ranks.back();
  if (line.global_batch) {
    request.global_batch = parse_count("--global-batch", *line.global_batch);
  }
  check_layers(evaluator.model(), request.ranks.size());
  const Plan made = make_plan(evaluator, std::move(request));
  if (line.format == "json") return {plan_json(made, evaluator), made.is_feasible()};
  return {passed_over(line.given) + plan_text(made, evaluator), made.is_feasible()};
}

ModeOutput largest(const PlannerLine& line, const Evaluator& evaluator, const MemoryOptions& base) {
  if (*line.largest != "batch") {
    throw InputError(
        fmt::format("--largest: is \"{}\", must be batch: the largest micro-batch that fits",
                    printable(*line.largest)));
  }
  const std::int64_t memory = memory_of(line, "--largest");
  const LargestBatch found = largest_batch(evaluator, base, memory);
  return {largest_text(found, base, memory), found.batch > 0};
}

ModeOutput sweep(const PlannerLine& line, Evaluator evaluator, const std::string& model_name,
                 const MemoryOptions& base) {
  const std::vector<SweepAxis> axes = parse_sweep(*line.sweep);
  if (base.recipe.strategy == optim::Strategy::single &&
      std::ranges::any_of(axes, [](const SweepAxis& axis) {
        return axis.key == "world" || axis.key == "replicas" || axis.key == "mesh";
      })) {
    throw InputError("--sweep: one process has one rank; add --parallel.strategy fsdp");
  }
  if (base.recipe.strategy != optim::Strategy::fsdp &&
      std::ranges::any_of(axes, [](const SweepAxis& axis) {
        return axis.key == "replicas" || axis.key == "mesh";
      })) {
    throw InputError("--sweep replicas: only shards are replicated; add --parallel.strategy fsdp");
  }
  if (base.recipe.strategy != optim::Strategy::fsdp &&
      std::ranges::find(axes, "reshard", &SweepAxis::key) != axes.end()) {
    throw InputError("--sweep reshard: only shards are gathered; add --parallel.strategy fsdp");
  }
  if (line.svg) io::probe_file(*line.svg);
  Sweep made = make_sweep(evaluator, model_name, base, axes);
  if (line.memory) made.memory = parse_bytes("--memory", *line.memory);
  if (line.svg) io::write_output_file(*line.svg, sweep_svg(made));
  return {line.format == "json" ? sweep_json(made) : sweep_text(made)};
}

}  // namespace

void PlannerLine::declare(program::OptionParser& parser) {
  parser.add_flag("--plan", plan,
                  "find the fastest configurations that fit --memory, on a modeled machine");
  parser.add_text("--largest", largest, "batch: the largest micro-batch that fits --memory");
  parser.add_flag("--which-strategy", which_strategy,
                  "where one strategy becomes better than another, with --memory");
  parser.add_text("--sweep", sweep,
                  "world=8..1024: memory and step time while this doubles; also replicas, "
                  "mesh (replicas of the same ranks), batch, seq_len, prefetch, reshard (no "
                  "range), and two at once: world=8..64,batch=1..8");
  parser.add_text("--svg", svg, "--sweep: write the picture here");
  parser.require("--svg", "--sweep");
  parser.add_text(
      "--ranks", ranks,
      "--plan: ranks to choose from, 8..64 (those of the configuration, or 1..64); else the "
      "number of ranks W (parallel.ranks)");
  parser.add_text("--global-batch", global_batch,
                  "--plan: sequences per step (8 per rank of the most ranks)");
  parser.require("--global-batch", "--plan");
  machine.declare(parser);
  for (const char* name : {"--flops", "--flops-16", "--hbm", "--link", "--latency", "--box",
                           "--far-link", "--far-latency", "--bus"}) {
    parser.require_any(name, {"--plan", "--sweep", "--which-strategy"});
  }
}

namespace {

/// The first line of every mode.
std::string framework_line(const PlannerLine& line, const MemoryOptions& base) {
  return fmt::format("framework {}: {}{}\n", paper::name_of(base.framework),
                     paper::meaning_of(base.framework),
                     base.framework == paper::Framework::unshard || line.largest
                         ? ""
                         : "; step times are those of our kernels");
}

ModeOutput run_checked(const PlannerLine& line, const nn::TransformerConfig& model,
                       const std::string& model_name, const MemoryOptions& base,
                       const Needed& needed) {
  if (line.which_strategy) {
    return {which_strategy_text(model, line.machine.cost_model(), base,
                                memory_of(line, "--which-strategy"))};
  }
  const Evaluator evaluator(model, line.machine.cost_model(), needed);
  if (line.sweep) return sweep(line, evaluator, model_name, base);
  return line.plan ? plan(line, evaluator, model_name, base) : largest(line, evaluator, base);
}

}  // namespace

ModeOutput run_mode(const PlannerLine& line, const nn::TransformerConfig& model,
                    const std::string& model_name, const MemoryOptions& base,
                    const Needed& needed) {
  check_line(line);
  if (!line.largest) paper::check_timed(base);
  ModeOutput output = run_checked(line, model, model_name, base, needed);
  if (line.format != "json") output.text = framework_line(line, base) + output.text;
  return output;
}

}  // namespace fsdp::plan
