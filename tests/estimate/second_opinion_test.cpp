// What the second opinion says of a run that is not as the formula has it.
#include "estimate/second_opinion.h"
#include "estimate/modes.h"
#include "train/bound.h"

#include <fmt/format.h>

#include <functional>

namespace fsdp::estimate {
namespace {

using paper::MemorySnapshot;

const Estimate& offloaded() {
  static const Estimate kMade = estimated({"--model.preset=nano", "--parallel.strategy=fsdp",
                                           "--parallel.ranks=3", "--parallel.offload_params=true"});
  return kMade;
}

/// The difference that is found when `change` has been made to the second iteration.
std::string difference_after(const std::function<void(IterationMemory&)>& change) {
  EstimateRun run = offloaded().run;
  change(run.iterations.at(1));
  return second_opinion(offloaded().config, run).difference;
}

/// "estimated 17 = …; the formula says 10 = …"
std::string both(const Breakdown& measured, const Breakdown& expected) {
  return fmt::format("estimated {} = {}; the formula says {} = {}", measured.total(),
                     to_string(measured), expected.total(), to_string(expected));
}

Breakdown more(Breakdown bytes) {
  bytes[MemoryKind::temp] += 7;
  return bytes;
}

}  // namespace

TEST_CASE("a run like the formula has no difference", "[estimator]") {
  CHECK(difference_after([](IterationMemory&) {}) == "");
}

TEST_CASE("a second opinion names place, estimate and formula", "[estimator]") {
  const IterationMemory& right = offloaded().run.iterations.at(1);
  const paper::MicroStepMemory& micro_step = right.as_formula.micro_steps.at(0);
  const MemorySnapshot& snapshot = micro_step.snapshots.at(3);
  CHECK(difference_after([](IterationMemory& run) {
          Breakdown& bytes = run.as_formula.micro_steps.at(0).snapshots.at(3).bytes;
          bytes = more(bytes);
        }) == fmt::format("iteration 1, micro-step 0, {} of {}: {}", name_of(snapshot.state),
                          snapshot.module, both(more(snapshot.bytes), snapshot.bytes)));
  CHECK(difference_after([](IterationMemory& run) {
          Breakdown& bytes = run.as_formula.step_peak;
          bytes = more(bytes);
        }) == "iteration 1, peak of clip and optimizer: " +
                  both(more(right.as_formula.step_peak), right.as_formula.step_peak));
  CHECK(difference_after([](IterationMemory& run) {
          run.as_formula.micro_steps.at(0).snapshots.pop_back();
        }) == fmt::format("iteration 1, micro-step 0: {} snapshots, but the formula has {}",
                          micro_step.snapshots.size() - 1, micro_step.snapshots.size()));
  CHECK(difference_after([](IterationMemory& run) { run.as_formula.micro_steps.clear(); }) ==
        "iteration 1: 0 micro-steps, but the formula has 1");
  CHECK(difference_after([](IterationMemory& run) { run.peak = more(run.peak); }) ==
        fmt::format("iteration 1: the peak is {}, but the formula says {}", right.peak.total() + 7,
                    right.peak.total()));
}

TEST_CASE("a second opinion compares the host's memory, too", "[estimator]") {
  const IterationMemory& right = offloaded().run.iterations.at(1);
  CHECK(difference_after([](IterationMemory& run) { run.host_peak = more(run.host_peak); }) ==
        "iteration 1, host: " + both(more(right.host_peak), right.host_peak));
  CHECK(difference_after([](IterationMemory& run) { run.host_after = more(run.host_after); }) ==
        "iteration 1, host, afterwards: " + both(more(right.host_after), right.host_after));
}

}  // namespace fsdp::estimate
