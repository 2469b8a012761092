// Throws what the program that calls it does not know, behind a line without an end.
#include "race/policy.h"

#include <cstdio>
#include <stdexcept>

namespace fsdp::race {

Plan plan(const Problem& /*problem*/) {
  std::printf("race_policy: before");
  throw std::runtime_error("of its own");
}

}  // namespace fsdp::race
