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

TEST_CASE("Other checkpointed models", "[8.5][hidden]") {
  judge_checkpoint_backward({.world_size = 1,
                             .seed = 31,
                             .options = {{"layers", 4}, {"ffn", 20}, {"frozen", {"model.norm"}}}});
  judge_checkpoint_training({.world_size = 4,
                             .seed = 32,
                             .delivery = Delivery::eager,
                             .options = {{"checkpoint", "inside"},
                                         {"layers", 3},
                                         {"micro_batches", 8},
                                         {"no_decay", {"norm"}},
                                         {"depth", 2}}});
  judge_checkpoint_memory({.world_size = 3,
                           .seed = 33,
                           .options = {{"checkpoint", "inside"},
                                       {"width", 48},
                                       {"ffn", 150},
                                       {"layers", 3},
                                       {"micro_batches", 6}}});
}

TEST_CASE("Other checkpoints around units", "[8.6][hidden]") {
  judge_around({.world_size = 4,
                .seed = 41,
                .delivery = Delivery::eager,
                .options = {{"model", "toy"}, {"layers", 4}, {"width", 6}}});
  judge_around({.world_size = 3,
                .seed = 42,
                .options = {{"model", "toy"}, {"layers", 4}, {"order", {2, 1, 2, 2, 3}}}});
  judge_checkpoint_training({.world_size = 4,
                             .seed = 43,
                             .options = {{"checkpoint", "around"},
                                         {"layers", 3},
                                         {"micro_batches", 8},
                                         {"per_reduction", 2},
                                         {"group", 2}}});
}
