// The hidden cases of task 1: other numbers, nothing else. An instructor rotates this file.
#include "graded/expect.h"
#include "support/catch.h"
#include "task1/cases.h"

using namespace fsdp::graded;

TEST_CASE("Slices, other models", "[1.3][hidden]") {
  judge_slices({.seed = 77, .options = {{"layers", 4}, {"width", 6}, {"offset", 123457}}});
  judge_slices({.seed = 31, .options = {{"model", "transformer"}, {"between", 900}}});
  judge_slice_peak({.seed = 8, .options = {{"layers", 2}, {"width", 433}, {"offset", 5}}});
  judge_slices({.world_size = 2,
                .seed = (std::uint64_t{9} << 33) + 2,
                .options = {{"model", "vast"}, {"offset", (std::int64_t{7} << 32) + 2}}});
}

TEST_CASE("materialize, other models", "[1.4][hidden]") {
  judge_whole({.seed = 63, .options = {{"layers", 4}, {"width", 7}, {"offset", 99991}}});
  judge_whole({.world_size = 2, .seed = 12, .options = {{"model", "transformer"}, {"between", 3}}});
  judge_two_models({.seed = 4, .options = {{"model", "mixed"}, {"offset", 10}}});
  judge_two_models({.world_size = 2, .seed = 44, .options = {{"model", "shared"}}});
  judge_by_parts({.seed = 21, .options = {{"layers", 4}, {"spare", true}, {"offset", 33}}});
}
