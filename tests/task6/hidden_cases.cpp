// The hidden cases of task 6: other numbers, nothing else. An instructor rotates this file.
#include "graded/expect.h"
#include "support/catch.h"
#include "task6/cases.h"

using namespace fsdp::graded;

TEST_CASE("Forward in other orders", "[6.4][hidden]") {
  const Json six = {0, 1, 2, 3, 4, 5};
  judge_iterations(
      "6.4", {.world_size = 3,
              .delivery = Delivery::lazy,
              .options = {{"layers", 6}, {"depth", 2}, {"orders", {six, {1, 4, 5}, {5, 0}, six}}}});
  judge_iterations("6.4", {.world_size = 5,
                           .options = {{"layers", 6},
                                       {"depth", 4},
                                       {"limit", 3},
                                       {"keep", {5}},
                                       {"orders", {{3, 3, 1}, {3, 1, 3, 2}, {0, 1, 3}}}}});
  judge_iterations("6.4", {.world_size = 2,
                           .options = {{"layers", 6},
                                       {"depth", 2},
                                       {"frozen", {0, 3}},
                                       {"evaluations", {1}},
                                       {"orders", {six, {5, 3, 1}, {0, 3, 2, 3}, six}}}});
  judge_time("6.4", {.options = {{"units", 11}, {"ranks", 4}, {"ps_per_byte", 17}, {"depth", 2}}});
}

TEST_CASE("Backward in other orders", "[6.5][hidden]") {
  const Json six = {0, 1, 2, 3, 4, 5};
  judge_iterations("6.5", {.world_size = 4,
                           .delivery = Delivery::lazy,
                           .options = {{"layers", 6},
                                       {"depth", 2},
                                       {"keep", {3, 5}},
                                       {"orders", {six, {0, 3, 5}, {5, 2, 1}, six}}}});
  judge_iterations("6.5", {.world_size = 2,
                           .options = {{"layers", 6},
                                       {"depth", 3},
                                       {"limit", 1},
                                       {"keep", {5}},
                                       {"orders", {{1, 2, 1, 5}, {5, 1, 2, 4}}}}});
  judge_iterations("6.5", {.world_size = 2,
                           .delivery = Delivery::lazy,
                           .options = {{"layers", 6},
                                       {"depth", 2},
                                       {"keep", {5}},
                                       {"frozen", {0, 3}},
                                       {"evaluations", {1}},
                                       {"orders", {{0, 1, 100 + 2, 3, 4, 5}, {5, 3, 1}, six}}}});
  judge_time(
      "6.5",
      {.options = {
           {"units", 11}, {"ranks", 4}, {"ps_per_byte", 17}, {"reduce_factor", 2}, {"depth", 2}}});
}
