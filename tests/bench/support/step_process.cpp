#include "bench/support/step_process.h"

#include "base/check.h"

#include <cstdio>

namespace fsdp::bench {

void print(const StepCost& cost) {
  const Phases& phases = cost.phases;
  fmt::print("{} {} {} {} {} {} {}\n", cost.seconds, cost.faults, cost.rss, cost.accounted,
             phases.gradients, phases.finish, phases.update);
}

StepCost measure_in_child(const std::string& command) {
  FILE* child = popen(command.c_str(), "r");
  FSDP_CHECK(child != nullptr, "could not start {}", command);
  StepCost cost;
  Phases& phases = cost.phases;
  const int read =
      std::fscanf(child, "%lf %lf %lf %lf %lf %lf %lf", &cost.seconds, &cost.faults, &cost.rss,
                  &cost.accounted, &phases.gradients, &phases.finish, &phases.update);
  const int status = pclose(child);
  FSDP_CHECK(read == 7 && status == 0, "{} failed", command);
  return cost;
}

}  // namespace fsdp::bench
