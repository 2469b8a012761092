#include "race/judge.h"

#include "base/check.h"
#include "base/todo.h"
#include "device/context.h"
#include "plan/choices.h"
#include "plan/evaluator.h"
#include "plan/plan.h"
#include "race/executor.h"
#include "race/plan_text.h"
#include "report/runs/short_run.h"
#include "strategies/trained_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace fsdp::race {
namespace {

/// @param plan null: plain FSDP. It must outlive the run.
report::ShortRun run_of(const nn::TransformerConfig& model, const paper::MemoryOptions& options,
                        const Plan* plan) {
  report::ShortRun run{
      .model_name = "the model", .model = model, .recipe = options.recipe, .batch = options.batch};
  // The scratch of the kernels' threads counts, and a fake device has no need of it.
  const auto hold_scratch = [] { Context::current().pool(); };
  if (plan == nullptr) {
    run.after_sharding = [=](strategies::TrainedModel&) -> std::shared_ptr<void> {
      hold_scratch();
      return nullptr;
    };
    return run;
  }
  run.recipe.sharding.reshard_after_forward = parts_of(*plan, run.recipe.ranks);
  run.recipe.sharding.prefetch_depth = 0;
  run.before_sharding = [plan](nn::TransformerLM& made) { prepare(made, *plan); };
  run.after_sharding = [=](strategies::TrainedModel& trained) -> std::shared_ptr<void> {
    hold_scratch();
    return std::make_shared<PlanExecutor>(*plan, *trained.sharded());
  };
  return run;
}

using Bits = std::map<std::string, std::vector<std::byte>>;

/// The parameters after two steps over J = 4 micro-batches.
Bits trained_bits(const Track& track, const Plan* plan, int ranks) {
  paper::MemoryOptions options = track.options();
  options.batch = 1;
  options.recipe.ranks = ranks;
  options.recipe.micro_steps = 4 / ranks;
  if (plan == nullptr) options.recipe.strategy = optim::Strategy::single;
  report::ShortRun run = run_of(track.narrow(), options, plan);
  Bits bits;
  run.at_end = [&bits](strategies::TrainedModel& trained) {
    trained.for_each_full_parameter([&](const std::string& path, const Tensor& full) {
      if (!trained.is_first()) return;
      bits[path].assign(full.raw(), full.raw() + full.nbytes());
    });
  };
  report::record_threads(run);
  return bits;
}

}  // namespace

Measured measure(const Track& track, const Plan* plan) {
  Measured measured;
  measured.record = report::record_fake(run_of(track.model, track.options(), plan), track.machine);
  const report::RankRecord& rank = measured.record.ranks.front();
  measured.step_ps = rank.end;
  measured.peak_bytes = rank.peak.total();
  return measured;
}

std::string difference_in_bits(const Track& track, const Plan& plan) {
  const Bits alone = trained_bits(track, nullptr, 1);
  for (const int ranks : {1, 2, 4}) {
    const Bits sharded = trained_bits(track, &plan, ranks);
    for (const auto& [path, expected] : alone) {
      const auto found = sharded.find(path);
      if (found != sharded.end() && found->second == expected) continue;
      return fmt::format("over {} rank{}, the trained {} has other bits than in a single process",
                         ranks, ranks == 1 ? "" : "s", path);
    }
  }
  return {};
}

std::optional<Planned> best_of_planner(const PaperTrack& paper) {
  const Track& track = paper.track();
  const paper::MemoryOptions options = track.options();
  const plan::PlanRequest request{.base = options,
                                  .memory = track.memory_bytes,
                                  .ranks = {track.ranks},
                                  .global_batch = track.ranks * track.batch};
  plan::Evaluator evaluator(track.model, track.machine);
  std::optional<Planned> best;
  for (const paper::MemoryOptions& each : plan::candidates(request)) {
    const optim::Recipe& recipe = each.recipe;
    if (recipe.strategy != optim::Strategy::fsdp || recipe.replicas != 1 ||
        each.batch != track.batch ||
        recipe.precision.param_dtype != options.recipe.precision.param_dtype ||
        recipe.precision.reduce_dtype != options.recipe.precision.reduce_dtype) {
      continue;
    }
    const plan::Outcome outcome = evaluator.evaluate(each);
    if (outcome.memory() > track.memory_bytes) continue;
    if (best && outcome.step() >= best->step_ps) continue;
    using plan::Choice;
    best = {outcome.step(),
            fmt::format("reshard {}, prefetch {}{}", plan::value_of(Choice::reshard, each),
                        plan::value_of(Choice::prefetch, each),
                        recipe.checkpoints_blocks() ? ", checkpoints" : "")};
  }
  return best;
}

std::string refusal(const std::function<std::string()>& run) {
  try {
    return run();
  } catch (const Error& error) {
    return error.what();
  } catch (const TodoError& error) {
    std::string said = as_sentence(error);
    if (said.starts_with("step 3.4 ")) return said + ". Until then, plan no keep_part";
    if (!said.starts_with("step 8")) return said;
    return fmt::format(
        "a block can be checkpointed once task 8 does it, and {}. Until then, plan "
        "no checkpoint",
        said);
  }
}

Verdict judge(const Track& track, const std::string& text) {
  const PaperTrack paper(track);
  Verdict verdict{.track = &track,
                  .refused = {},
                  .plan = {},
                  .fsdp = measure(track, nullptr),
                  .planner = best_of_planner(paper),
                  .bound = bound_of(paper)};
  verdict.refused = refusal([&] {
    const Plan plan = plan_from_json(text);
    check_plan(plan, paper.modules(), track.ranks);
    verdict.plan = measure(track, &plan);
    const std::string too_much = refused_for_memory(verdict.plan.peak_bytes, track);
    return too_much.empty() ? difference_in_bits(track, plan) : too_much;
  });
  return verdict;
}

}  // namespace fsdp::race
