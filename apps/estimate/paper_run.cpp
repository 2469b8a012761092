// Two iterations on paper, for the frameworks that are not here to run.
#include "base/check.h"
#include "estimate/estimate_run.h"
#include "estimate/walk_recorder.h"
#include "paper/kernel_times.h"
#include "paper/memory_formula.h"
#include "paper/step_walk.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::estimate {
namespace {

std::vector<std::string> rows_of(const nn::TransformerConfig& model,
                                 const paper::MemoryOptions& options) {
  std::vector<std::string> rows = paper::model_shape(model, options).segments;
  rows.insert(rows.begin(), "root");
  return rows;
}

}  // namespace

// The clock gives the curve a time axis: that of our kernels, without what a rank waits for.
void run_on_paper(const EstimatorConfig& config, EstimateRun& run) {
  const nn::TransformerConfig& model = config.train.model;
  const paper::MemoryOptions options = memory_options(config);
  WalkRecorder recorder(rows_of(model, options));
  paper::Books books(options);
  books.open_clock(machine(), paper::kernel_times(model, options, machine()));
  books.set_observer(&recorder);
  run.stages.push_back({"group", 0, 0});
  paper::StepWalk walk(model, options, books);
  run.stages.push_back(
      {"model", recorder.tracker().current_total(), recorder.tracker().peak_total()});
  recorder.begin_record();
  for (int i = 0; i < kIterations; ++i) {
    recorder.begin_iteration();
    walk.next_step();
    IterationMemory memory = recorder.end_iteration();
    memory.learning_rate = config.train.schedule.at(i);
    run.iterations.push_back(std::move(memory));
    run.ended.push_back(recorder.now());
  }
  run.parameters = model.parameter_count() + config.train.lora_parameters();
  run.record.cost_model = machine();
  run.record.ranks.push_back(recorder.finish(config.rank));
  run.allocator = {.peak_active = run.tracker_max(), .peak_reserved = recorder.reserved()};
}

// From the third micro-step on, all are alike if each is reduced.
std::int64_t needed_bytes(const nn::TransformerConfig& model, const paper::MemoryOptions& options) {
  paper::MemoryOptions shorter = options;
  if (options.recipe.micro_steps_per_reduction == 1) {
    shorter.recipe.micro_steps = std::min(options.recipe.micro_steps, 3);
  }
  WalkRecorder recorder({});
  paper::Books books(shorter);
  books.set_observer(&recorder);
  paper::StepWalk walk(model, shorter, books);
  for (int i = 0; i < kIterations; ++i) {
    recorder.begin_iteration();
    walk.next_step();
    recorder.end_iteration();
  }
  return recorder.reserved() + paper::kOutsideBytes;
}

}  // namespace fsdp::estimate
