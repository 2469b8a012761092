/// @file
/// One configuration, estimated in both modes and by formula.
#pragma once

#include "estimate/estimate.h"
#include "estimate/estimator_config.h"
#include "support/catch.h"

#include <optional>
#include <string>
#include <vector>

namespace fsdp::estimate {

using Words = std::vector<std::string>;

/// Without a file and without an environment.
inline EstimatorConfig configured(const Words& words) {
  return load_estimator_config(std::nullopt, words, {});
}

inline Estimate estimated(const Words& words, bool is_real = false, int rank = 0) {
  EstimatorConfig config = configured(words);
  config.is_real = is_real;
  config.rank = rank;
  return make_estimate(std::move(config));
}

/// An estimate with offload in which no two numbers are equal that are equal in a run.
inline Estimate with_distinct_numbers() {
  Estimate made = estimated({"--model.preset=nano", "--parallel.ranks=4",
                             "--parallel.strategy=fsdp", "--parallel.offload_params=true"});
  std::int64_t more = 0;
  const auto differ = [&more](std::int64_t& value) { value += ++more * 1'000; };
  for (Stage& stage : made.run.stages) {
    differ(stage.held);
    differ(stage.highest);
  }
  for (IterationMemory& iteration : made.run.iterations) {
    differ(iteration.host_peak[MemoryKind::optimizer]);
    differ(iteration.host_after[MemoryKind::optimizer]);
  }
  differ(made.run.allocator.peak_active);
  differ(made.run.allocator.peak_reserved);
  differ(made.run.allocator.scratch);
  for (Breakdown& peak : made.opinion.host_peaks) differ(peak[MemoryKind::optimizer]);
  return made;
}

/// That fake mode, real mode and the formula have the same bytes of every kind, at the eight states
/// of every unit, and at every peak.
inline void check_modes(const Words& words, int rank = 0) {
  std::string described;
  for (const std::string& word : words) described += word + " ";
  INFO(described);
  const Estimate fake = estimated(words, false, rank);
  CHECK(fake.opinion.difference == "");
  CHECK(fake.opinion.compared > 20);
  const Estimate real = estimated(words, true, rank);
  CHECK(real.opinion.difference == "");
  for (std::size_t i = 0; i < kIterations; ++i) {
    const IterationMemory& counted = fake.run.iterations.at(i);
    const IterationMemory& held = real.run.iterations.at(i);
    CHECK(counted.peak == held.peak);
    CHECK(counted.after == held.after);
    REQUIRE(counted.modules.size() == held.modules.size());
    for (std::size_t m = 0; m < counted.modules.size(); ++m) {
      CHECK(counted.modules[m].name == held.modules[m].name);
      CHECK(counted.modules[m].columns == held.modules[m].columns);
    }
  }
  // Two counts of one thing: the tracker's, and the allocator's own.
  for (const Estimate* each : {&fake, &real}) {
    CHECK(each->run.tracker_max() == each->run.allocator.peak_active);
    CHECK(each->replays);
    CHECK(each->is_good());
  }
}

}  // namespace fsdp::estimate
