// The hidden cases of task 2: other numbers, nothing else. An instructor rotates this file.
#include "base/types.h"
#include "graded/expect.h"
#include "support/catch.h"
#include "task2/cases.h"

using namespace fsdp::graded;
using Shapes = std::vector<fsdp::Shape>;

TEST_CASE("The shard, other sizes", "[2.3][hidden]") {
  judge_shard({.world_size = 6, .seed = 12, .options = {{"shapes", Shapes{{2}, {1, 2}, {3}}}}});
  judge_shard({.world_size = 5, .seed = 8, .options = {{"shapes", Shapes{{3, 5}, {2}, {4}}}}});
  judge_shard(
      {.world_size = 8, .seed = 3, .options = {{"shapes", Shapes{{2}, {1}}}, {"meta", true}}});
  judge_shard_peak({.world_size = 5, .options = {{"shapes", Shapes{{90, 301}, {7}}}}});
}

TEST_CASE("Units, other models", "[2.5][hidden]") {
  judge_units({.options = {{"layers", 12},
                           {"root_weight", true},
                           {"units", {"layers.11", "layers.1", "layers.10"}}}});
  judge_units({.options = {{"pair", true},
                           {"tied", true},
                           {"nested", true},
                           {"layers", 3},
                           {"units", {"right", "left.layers.2", "left.layers.0.inner", "left"}},
                           {"ignored", {"right.layers.1.bias"}}}});
}
