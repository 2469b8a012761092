// The hidden cases of task 4: other numbers, nothing else. An instructor rotates this file.
#include "graded/expect.h"
#include "support/catch.h"
#include "task4/cases.h"

using namespace fsdp::graded;

TEST_CASE("A reduction, other sizes", "[4.3][hidden]") {
  judge_start_reduce({.world_size = 5,
                      .seed = 21,
                      .delivery = Delivery::lazy,
                      .options = {{"width", 7}, {"spare", true}}});
  judge_start_reduce({.world_size = 6,
                      .seed = 8,
                      .delivery = Delivery::eager,
                      .options = {{"width", 2}, {"micro_steps", 5}, {"per_reduction", 5}}});
  judge_start_reduce_peak({.world_size = 5, .seed = 3, .options = {{"width", 150}}});
}

TEST_CASE("The end of backward, other models", "[4.6][hidden]") {
  judge_whole_backward({.world_size = 5,
                        .seed = 13,
                        .delivery = Delivery::lazy,
                        .options = {{"width", 4}, {"layers", 5}, {"order", {4, 0, 2, 0}}}});
  judge_whole_backward({.world_size = 4,
                        .seed = 2,
                        .delivery = Delivery::eager,
                        .options = {{"layers", 4},
                                    {"group", 2},
                                    {"order", {0, 3}},
                                    {"frozen", {"layers.3", "layers.1.bias"}},
                                    {"micro_steps", 6},
                                    {"per_reduction", 2}}});
}

TEST_CASE("The average, other models", "[4.7][hidden]") {
  judge_finish(
      {.world_size = 8, .seed = 17, .options = {{"width", 6}, {"root", true}, {"micro_steps", 2}}});
  judge_finish({.world_size = 5, .seed = 9, .options = {{"width", 4}, {"micro_steps", 3}}});
  judge_finish({.world_size = 5,
                .seed = 6,
                .delivery = Delivery::lazy,
                .options = {{"layers", 4},
                            {"nested", true},
                            {"order", {3, 1, 1, 0}},
                            {"micro_steps", 6},
                            {"per_reduction", 3},
                            {"steps", 2}}});
}
