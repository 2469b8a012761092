// The hidden cases of task 3: other numbers, nothing else. An instructor rotates this file.
#include "graded/expect.h"
#include "support/catch.h"
#include "task3/cases.h"

using namespace fsdp::graded;

TEST_CASE("start_unshard, other sizes", "[3.1][hidden]") {
  judge_start({.world_size = 5, .seed = 23, .options = {{"width", 7}, {"spare", true}}});
  judge_start({.world_size = 7, .seed = 5, .options = {{"width", 2}}});
  judge_calls("3.1", {.world_size = 6,
                      .options = {{"width", 3}, {"group", 3}, {"calls", "S"}, {"spare", true}}});
  judge_start_peak({.world_size = 5, .seed = 3, .options = {{"width", 140}}});
}

TEST_CASE("reshard, other sizes", "[3.3][hidden]") {
  for (const char* when : {"unsharded", "unsharding"}) {
    judge_reshard({.world_size = 5,
                   .seed = 31,
                   .delivery = Delivery::lazy,
                   .options = {{"width", 6}, {"spare", true}, {"when", when}}});
  }
  judge_calls("3.3", {.world_size = 5,
                      .delivery = Delivery::lazy,
                      .options = {{"width", 2}, {"calls", "FrurSsrufrusFrufrSfrsrFru"}}});
}

TEST_CASE("The hooks, other models", "[3.5][hidden]") {
  judge_hooks({.world_size = 5, .seed = 9, .options = {{"width", 4}, {"layers", 5}}});
  judge_hooks({.world_size = 6, .seed = 9, .options = {{"layers", 4}, {"group", 3}}});
  judge_hooks({.world_size = 3,
               .seed = 4,
               .delivery = Delivery::lazy,
               .options = {{"layers", 4}, {"group", 1}, {"keep", {0}}}});
  judge_hooks({.world_size = 5,
               .seed = 6,
               .options = {{"layers", 2},
                           {"keep", {1}},
                           {"passes", {"eval", "tape", "again", "reset", "update", "eval"}}}});
}
