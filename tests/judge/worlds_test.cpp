// W=3 in make test-task3 W=3: where a case is judged then.
#include "graded/expect.h"
#include "support/catch.h"

#include <cstdlib>
#include <string>
#include <vector>

using fsdp::graded::worlds;

namespace {

std::vector<int> worlds_if(const std::string& asked, const std::vector<int>& given) {
  setenv("FSDP_WORLD", asked.c_str(), 1);
  const std::vector<int> found = worlds(given);
  unsetenv("FSDP_WORLD");
  return found;
}

}  // namespace

TEST_CASE("a case is judged at the world that was asked for if it holds there") {
  const std::vector<int> any = {1, 2, 3, 4}, some = {2, 3}, powers = {1, 2, 4}, one = {4};
  CHECK(worlds_if("", any) == any);
  CHECK(worlds_if("3", any) == std::vector{3});
  CHECK(worlds_if("7", any) == std::vector{7});
  CHECK(worlds_if("5", some) == std::vector{5});
  CHECK(worlds_if("1", some) == some);  // nothing is sharded there
  CHECK(worlds_if("2", powers) == std::vector{2});
  CHECK(worlds_if("3", powers) == powers);  // bits are equal for powers of two only
  CHECK(worlds_if("8", powers) == powers);  // of four micro-batches no rank would have one
  CHECK(worlds_if("4", one) == one);
  CHECK(worlds_if("8", one) == one);
}
