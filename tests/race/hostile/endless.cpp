// Never ends: the processor time of a policy is limited.
#include "race/policy.h"

namespace fsdp::race {

Plan plan(const Problem& problem) {
  volatile std::int64_t step = 1;
  while (step > 0) step = problem.memory_bytes > 0 ? 1 : 2;
  return {};
}

}  // namespace fsdp::race
