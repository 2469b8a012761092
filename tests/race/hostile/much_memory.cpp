// Takes more memory than a policy may have.
#include "race/policy.h"

#include <vector>

namespace fsdp::race {

Plan plan(const Problem& problem) {
  std::vector<std::vector<char>> all;
  while (problem.ranks > 0) all.emplace_back().reserve(std::size_t{1} << 28);
  return {};
}

}  // namespace fsdp::race
