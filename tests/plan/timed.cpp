#include "plan/timed.h"

#include "paper/time_formula.h"
#include "support/catch.h"

#include <fmt/format.h>

namespace fsdp::testing {

MemoryCase timed_case(int world_size) {
  MemoryCase test_case;
  test_case.model = odd_model();
  test_case.options.recipe.ranks = world_size;
  test_case.options.batch = 2;
  test_case.options.recipe.clip = 1;
  return test_case;
}

std::string difference_in_time(MemoryCase test_case, const CostModel& machine) {
  test_case.is_fake = true;
  test_case.records = false;
  test_case.steps = 3;
  test_case.machine = machine;
  const MeasuredMemory measured = measure(test_case).front();
  const paper::TimeFormula formula(test_case.model, test_case.options, machine);
  if (std::ssize(measured.times) != test_case.steps) {
    return fmt::format("{}: {} of {} steps were timed", describe(test_case), measured.times.size(),
                       test_case.steps);
  }
  for (std::size_t step = 0; step < measured.times.size(); ++step) {
    const std::int64_t expected = formula.step(static_cast<int>(step)).total();
    if (measured.times[step] == expected) continue;
    return fmt::format("{}: step {} takes {} ps, the formula says {}", describe(test_case), step,
                       measured.times[step], expected);
  }
  return {};
}

void check_times(const MemoryCase& test_case) {
  for (const CostModel& machine : {kOddMachine, kSlowKernels}) {
    CHECK(difference_in_time(test_case, machine) == "");
  }
}

}  // namespace fsdp::testing
