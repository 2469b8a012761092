// The hidden cases of task 8: other numbers, nothing else. An instructor rotates this file.
#include "graded/expect.h"
#include "support/catch.h"
#include "task8/cases.h"
#include "task8/shards.h"

using namespace fsdp::graded;

TEST_CASE("Other meshes", "[8.1][hidden]") {
  judge_mesh({.world_size = 8, .seed = 3, .options = {{"replicas", 2}}});
  judge_mesh({.world_size = 8, .seed = 4, .options = {{"replicas", 4}}});
  judge_mesh({.world_size = 6, .seed = 5, .options = {{"replicas", 3}}});
  judge_mesh({.world_size = 5, .seed = 6, .options = {{"replicas", 5}}});
}

TEST_CASE("Sums over other replicas", "[8.3][hidden]") {
  const Starts starts = {
      {"norm+lm_head", 0}, {"b", 0}, {"b", 1}, {"b", 2}, {"a", 0}, {"b", 0}, {"b", 1}, {"b", 2}};
  judge_finish({.world_size = 5,
                .seed = 11,
                .delivery = Delivery::lazy,
                .options = {{"starts", starts}, {"numel", 13}}});
  judge_clear({.world_size = 4,
               .seed = 12,
               .delivery = Delivery::eager,
               .options = {{"starts", starts}, {"then_starts", starts}, {"numel", 4}}});
}

TEST_CASE("Training over other meshes", "[8.3][hidden]") {
  const Json other = {{"layers", 3}, {"vocabulary", 29}, {"ffn", 36}, {"clip", 0.25}};
  judge_mesh_training(
      {.world_size = 8,
       .seed = 21,
       .delivery = Delivery::lazy,
       .options = with(
           other, {{"replicas", 4}, {"micro_batches", 16}, {"no_decay", {"norm"}}, {"depth", 2}})});
  judge_mesh_training({.world_size = 6,
                       .seed = 22,
                       .options = with(other, {{"replicas", 3}, {"micro_batches", 6}})});
  judge_mesh_training({.world_size = 4,
                       .seed = 23,
                       .options = with(other, {{"replicas", 2},
                                               {"micro_batches", 16},
                                               {"per_reduction", 2},
                                               {"given_up", true},
                                               {"param", "bfloat16"},
                                               {"reduce", "bfloat16"}})});
}
