#include "estimate/second_opinion.h"

#include "base/check.h"
#include "paper/memory_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp::estimate {
namespace {

using paper::MemoryFormula;
using paper::MemorySnapshot;
using paper::MemorySpace;
using paper::MicroStepMemory;
using paper::StepMemory;

/// Compares and remembers the first difference.
class Comparison {
 public:
  explicit Comparison(SecondOpinion& opinion) : opinion_(opinion) {}

  void compare(const std::string& where, const Breakdown& measured, const Breakdown& expected) {
    ++opinion_.compared;
    if (measured == expected) return;
    note(fmt::format("{}: estimated {} = {}; the formula says {} = {}", where, measured.total(),
                     to_string(measured), expected.total(), to_string(expected)));
  }

  void compare(const std::string& where, const MicroStepMemory& measured,
               const MicroStepMemory& expected) {
    const std::size_t count = std::min(measured.snapshots.size(), expected.snapshots.size());
    if (measured.snapshots.size() != expected.snapshots.size()) {
      note(fmt::format("{}: {} snapshots, but the formula has {}", where, measured.snapshots.size(),
                       expected.snapshots.size()));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const MemorySnapshot& now = measured.snapshots[i];
      const MemorySnapshot& then = expected.snapshots[i];
      const std::string name = fmt::format("{}, {} of {}", where, name_of(now.state), now.module);
      if (now.module != then.module || now.state != then.state) {
        return note(
            fmt::format("{}: the formula has {} of {}", name, name_of(then.state), then.module));
      }
      compare(name, now.bytes, then.bytes);
    }
    compare(where + ", peak of forward", measured.forward_peak, expected.forward_peak);
    compare(where + ", peak of backward", measured.backward_peak, expected.backward_peak);
  }

  void compare(const std::string& where, const StepMemory& measured, const StepMemory& expected) {
    if (measured.micro_steps.size() != expected.micro_steps.size()) {
      return note(fmt::format("{}: {} micro-steps, but the formula has {}", where,
                              measured.micro_steps.size(), expected.micro_steps.size()));
    }
    for (std::size_t m = 0; m < measured.micro_steps.size(); ++m) {
      compare(fmt::format("{}, micro-step {}", where, m), measured.micro_steps[m],
              expected.micro_steps[m]);
    }
    compare(where + ", peak of clip and optimizer", measured.step_peak, expected.step_peak);
    compare(where + ", afterwards", measured.at_rest, expected.at_rest);
  }

  void note(std::string what) {
    if (opinion_.difference.empty()) opinion_.difference = std::move(what);
  }

 private:
  SecondOpinion& opinion_;
};

}  // namespace

SecondOpinion second_opinion(const EstimatorConfig& config, const EstimateRun& run) {
  SecondOpinion opinion;
  const paper::MemoryOptions options = memory_options(config);
  const MemoryFormula formula(config.train.model, options);
  opinion.is_comparable = config.granularity == 1 && run.out_of_memory.empty() &&
                          config.train.training.device == "cpu" &&
                          config.framework == paper::Framework::unshard;
  Comparison comparison(opinion);
  for (int i = 0; i < kIterations; ++i) {
    const StepMemory expected = formula.step(i);
    opinion.peaks.push_back(expected.peak());
    if (!opinion.is_comparable) continue;
    const IterationMemory& measured = run.iterations.at(static_cast<std::size_t>(i));
    comparison.compare(fmt::format("iteration {}", i), measured.as_formula, expected);
    if (measured.peak.total() != expected.peak().total()) {
      comparison.note(fmt::format("iteration {}: the peak is {}, but the formula says {}", i,
                                  measured.peak.total(), expected.peak().total()));
    }
  }
  if (!options.recipe.sharding.offload.is_on()) return opinion;
  const MemoryFormula host(config.train.model, options, MemorySpace::host);
  for (int i = 0; i < kIterations; ++i) {
    const StepMemory expected = host.step(i);
    opinion.host_peaks.push_back(expected.peak());
    if (!opinion.is_comparable) continue;
    const IterationMemory& measured = run.iterations.at(static_cast<std::size_t>(i));
    comparison.compare(fmt::format("iteration {}, host", i), measured.host_peak, expected.peak());
    comparison.compare(fmt::format("iteration {}, host, afterwards", i), measured.host_after,
                       expected.at_rest);
  }
  return opinion;
}

}  // namespace fsdp::estimate
