#include "planner/planner.h"

#include "base/check.h"
#include "io/output_file.h"
#include "planner/largest.h"
#include "planner/plan.h"
#include "planner/quantity.h"
#include "planner/sweep.h"
#include "planner/which_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace fsdp::planner {

using estimate::MemoryOptions;

namespace {

/// Sequences per rank and step, if nobody says how many.
constexpr std::int64_t kSequencesPerRank = 8;

std::int64_t memory_of(const PlannerLine& line, const char* mode) {
  if (!line.memory) {
    throw InputError(fmt::format("{}: needs the memory of a device; add --memory 80GB", mode));
  }
  return parse_bytes("--memory", *line.memory);
}

void check_covered(const MemoryOptions& base) {
  if (base.lora_rank == 0) return;
  throw InputError("lora.rank: the planner knows trainings of whole models only; set it to 0");
}

std::string plan(const PlannerLine& line, const nn::TransformerConfig& model,
                 const std::string& model_name, const MemoryOptions& base) {
  Evaluator evaluator(model, line.machine.cost_model());
  PlanRequest request{.model_name = model_name,
                      .base = base,
                      .memory = memory_of(line, "--plan"),
                      .ranks = parse_range("--ranks", line.ranks.value_or("1..64")),
                      .has_bus = line.machine.bus.has_value(),
                      .ranks_per_box = line.machine.box};
  request.global_batch = kSequencesPerRank * request.ranks.back();
  if (line.global_batch) {
    request.global_batch = parse_range("--global-batch", *line.global_batch).front();
  }
  const Plan made = make_plan(evaluator, std::move(request));
  return line.format == "json" ? plan_json(made) : plan_text(made, evaluator);
}

std::string largest(const PlannerLine& line, const nn::TransformerConfig& model,
                    const MemoryOptions& base) {
  if (*line.largest != "batch") {
    throw InputError(fmt::format(
        "--largest: is \"{}\", must be batch: the largest micro-batch that fits", *line.largest));
  }
  const std::int64_t memory = memory_of(line, "--largest");
  Evaluator evaluator(model, {});
  return largest_text(largest_batch(evaluator, base, memory), base, memory);
}

std::string sweep(const PlannerLine& line, const nn::TransformerConfig& model,
                  const std::string& model_name, const MemoryOptions& base) {
  const std::vector<SweepAxis> axes = parse_sweep(*line.sweep);
  if (base.placement == estimate::Placement::single &&
      std::ranges::any_of(axes, [](const SweepAxis& axis) {
        return axis.key == "world" || axis.key == "replicas";
      })) {
    throw InputError("--sweep: one process has one rank; add --parallel.strategy fsdp");
  }
  if (line.svg) io::probe_file(*line.svg);
  Evaluator evaluator(model, line.machine.cost_model());
  const Sweep made = make_sweep(evaluator, model_name, base, axes);
  if (line.svg) io::write_output_file(*line.svg, sweep_svg(made));
  return line.format == "json" ? sweep_json(made) : sweep_text(made);
}

}  // namespace

void PlannerLine::declare(program::OptionParser& parser) {
  parser.add_flag("--plan", plan,
                  "find the fastest configurations that fit --memory, on a modeled machine");
  parser.add_text("--largest", largest, "batch: the largest micro-batch that fits --memory");
  parser.add_flag("--which-strategy", which_strategy,
                  "where one strategy becomes better than another, with --memory");
  parser.add_text("--sweep", sweep,
                  "world=8..1024: memory and step time while this doubles; also replicas, batch, "
                  "seq_len, prefetch, and two at once: world=8..64,batch=1..8");
  parser.add_text("--svg", svg, "--sweep: write the picture here");
  parser.require("--svg", "--sweep");
  parser.add_text("--ranks", ranks,
                  "--plan: ranks to choose from, 8..64 (1..64); else the number of ranks W "
                  "(parallel.ranks)");
  parser.add_text("--global-batch", global_batch,
                  "--plan: sequences per step (8 per rank of the most ranks)");
  parser.require("--global-batch", "--plan");
  machine.declare(parser);
  for (const char* name : {"--flops", "--hbm", "--link", "--latency", "--box", "--far-link",
                           "--far-latency", "--bus"}) {
    parser.require_any(name, {"--plan", "--sweep", "--which-strategy"});
  }
}

std::string run_mode(const PlannerLine& line, const nn::TransformerConfig& model,
                     const std::string& model_name, const MemoryOptions& base) {
  check_covered(base);
  const int modes = int{line.plan} + int{line.which_strategy} + int{line.largest.has_value()} +
                    int{line.sweep.has_value()};
  if (modes > 1) throw InputError("--plan, --largest, --sweep, --which-strategy: give one of them");
  if (line.which_strategy) {
    return which_strategy_text(model, line.machine.cost_model(), base,
                               memory_of(line, "--which-strategy"));
  }
  if (line.sweep) return sweep(line, model, model_name, base);
  return line.plan ? plan(line, model, model_name, base) : largest(line, model, base);
}

}  // namespace fsdp::planner
