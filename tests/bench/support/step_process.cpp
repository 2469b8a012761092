#include "bench/support/step_process.h"

#include "base/check.h"

#include <cstdio>

namespace fsdp::bench {

void print(const StepCost& cost) {
  fmt::print("{} {} {} {}\n", cost.seconds, cost.faults, cost.rss, cost.accounted);
}

StepCost measure_in_child(const std::string& command) {
  FILE* child = popen(command.c_str(), "r");
  FSDP_CHECK(child != nullptr, "could not start {}", command);
  StepCost cost;
  const int read = std::fscanf(child, "%lf %lf %lf %lf", &cost.seconds, &cost.faults, &cost.rss,
                               &cost.accounted);
  const int status = pclose(child);
  FSDP_CHECK(read == 4 && status == 0, "{} failed", command);
  return cost;
}

}  // namespace fsdp::bench
