// The public cases of task 8.
#include "graded/expect.h"
#include "support/catch.h"
#include "task8/cases.h"
#include "task8/shards.h"

#include <utility>
#include <vector>

using namespace fsdp::graded;

namespace {

const std::vector<std::pair<int, int>> kMeshes = {{3, 2}, {2, 2}, {4, 2}, {2, 4}, {2, 3}};
const Starts kTwoFlats = {{"layers.0", 0}, {"layers.0", 1}};
const Starts kUnits = {{"head", 0}, {"layers.1", 0}, {"layers.1", 1}, {"layers.0", 0}};

/// A step of several micro-steps, on any model.
Json mesh_of(int replicas, const Json& more = Json::object()) {
  return with({{"replicas", replicas}, {"micro_batches", 8}, {"clip", 0.5}}, more);
}

}  // namespace

TEST_CASE("A mesh: which ranks are a replica, and which hold the same", "[8.1]") {
  for (const auto& [replicas, shards] : kMeshes) {
    judge_mesh({.world_size = replicas * shards, .options = {{"replicas", replicas}}});
  }
}

TEST_CASE("A mesh of one replica, and of replicas of one rank", "[8.1]") {
  for (const int world_size : worlds({1, 2, 3, 4})) {
    judge_mesh({.world_size = world_size, .options = {{"replicas", 1}}});
    judge_mesh({.world_size = world_size, .options = {{"replicas", world_size}}});
  }
}

TEST_CASE("The sum over replicas is started, and not waited for", "[8.2]") {
  for (const int replicas : worlds({1, 2, 3, 4})) {
    for (const Delivery delivery : {Delivery::lazy, Delivery::plain}) {
      judge_start({.world_size = replicas, .delivery = delivery, .options = {{"numel", 7}}});
    }
  }
}

TEST_CASE("The sums of a unit's flat parameters are under way together", "[8.2]") {
  for (const int replicas : worlds({2, 3})) {
    judge_start({.world_size = replicas,
                 .delivery = Delivery::lazy,
                 .options = {{"starts", kTwoFlats}, {"numel", 3}}});
  }
}

TEST_CASE("What is under way of another unit, or of the same sum, is finished first", "[8.2]") {
  const Starts one = {{"root", 0}, {"root", 0}, {"root", 0}};
  const Starts two = {{"root", 0}, {"root", 1}, {"root", 0}, {"root", 1}};
  for (const int replicas : worlds({2, 3})) {
    for (const Starts& starts : {kUnits, one, two}) {
      judge_start({.world_size = replicas,
                   .delivery = Delivery::lazy,
                   .options = {{"starts", starts}, {"numel", 4}}});
    }
  }
}

TEST_CASE("What is under way becomes leaves", "[8.3]") {
  for (const int replicas : worlds({1, 2, 3, 4})) {
    for (const Delivery delivery : {Delivery::lazy, Delivery::eager}) {
      judge_finish({.world_size = replicas, .delivery = delivery, .options = {{"numel", 6}}});
      judge_finish({.world_size = replicas,
                    .delivery = delivery,
                    .options = {{"starts", kTwoFlats}, {"numel", 5}}});
    }
  }
}

TEST_CASE("Shards of one unit at a time are under way", "[8.3]") {
  for (const int replicas : worlds({2, 3})) {
    judge_finish({.world_size = replicas,
                  .delivery = Delivery::lazy,
                  .options = {{"starts", kUnits}, {"numel", 9}}});
  }
}

TEST_CASE("The next micro-step finds its sum under way, if there is one unit", "[8.3]") {
  const Starts one = {{"root", 0}, {"root", 0}, {"root", 0}, {"root", 0}};
  const Starts two = {{"root", 0}, {"root", 1}, {"root", 0}, {"root", 1}};
  for (const int replicas : worlds({2, 3})) {
    judge_finish(
        {.world_size = replicas, .delivery = Delivery::lazy, .options = {{"starts", one}}});
    judge_finish(
        {.world_size = replicas, .delivery = Delivery::lazy, .options = {{"starts", two}}});
  }
}

TEST_CASE("A step that was abandoned leaves nothing behind", "[8.3]") {
  for (const int replicas : worlds({2, 3})) {
    judge_clear({.world_size = replicas,
                 .delivery = Delivery::lazy,
                 .options = {{"starts", kTwoFlats}, {"then_starts", kUnits}}});
    judge_clear({.world_size = replicas,
                 .delivery = Delivery::eager,
                 .options = {{"starts", kUnits}, {"then_starts", kTwoFlats}}});
  }
}

TEST_CASE("Training over a mesh gives the same bits as a single process", "[8.3]") {
  for (const auto& [replicas, shards] : {std::pair{2, 2}, {4, 2}, {2, 4}, {2, 1}}) {
    judge_mesh_training({.world_size = replicas * shards,
                         .delivery = Delivery::lazy,
                         .options = mesh_of(replicas, {{"steps", 3}})});
  }
  judge_mesh_training({.world_size = 4, .options = mesh_of(2, {{"per_reduction", 2}})});
  judge_mesh_training({.world_size = 4, .options = mesh_of(2, {{"depth", 0}, {"group", 1}})});
}

TEST_CASE(
    "Training over a mesh with several flat parameters per unit, tied, frozen and ignored ones",
    "[8.3]") {
  judge_mesh_training({.world_size = 4,
                       .delivery = Delivery::lazy,
                       .options = mesh_of(2, {{"no_decay", {"norm"}}})});
  judge_mesh_training({.world_size = 4, .options = mesh_of(2, {{"tied", true}})});
  judge_mesh_training({.world_size = 4, .options = mesh_of(2, {{"frozen", {"model.layers.1"}}})});
  judge_mesh_training(
      {.world_size = 4, .options = mesh_of(2, {{"ignored", {"model.norm", "lm_head"}}})});
}

TEST_CASE("Training over a mesh under mixed precision", "[8.3]") {
  judge_mesh_training({.world_size = 4,
                       .delivery = Delivery::lazy,
                       .options = mesh_of(2, {{"param", "bfloat16"}, {"reduce", "float32"}})});
  judge_mesh_training({.world_size = 4, .options = mesh_of(2, {{"param", "bfloat16"}})});
}

TEST_CASE("Training over a mesh after a step that was abandoned", "[8.3]") {
  judge_mesh_training({.world_size = 4,
                       .delivery = Delivery::lazy,
                       .options = mesh_of(2, {{"given_up", true}, {"steps", 2}})});
}

TEST_CASE("Three replicas of two, and two of three", "[8.3]") {
  judge_mesh_training({.world_size = 6, .options = mesh_of(3, {{"micro_batches", 6}})});
  judge_mesh_training({.world_size = 6, .options = mesh_of(2, {{"micro_batches", 12}})});
}

TEST_CASE("The peak of memory over a mesh matches the formula", "[8.3]") {
  const Json wide = {{"width", 64}, {"ffn", 170}, {"vocabulary", 96}};
  for (const auto& [replicas, shards] : {std::pair{2, 2}, {2, 3}, {4, 1}}) {
    judge_mesh_memory({.world_size = replicas * shards,
                       .options = mesh_of(replicas, with(wide, {{"micro_batches", 12}}))});
  }
}

TEST_CASE("A checkpointed call keeps its input, and records one node", "[8.4]") {
  for (const bool nested : {false, true}) {
    const Json toy = {{"model", "toy"}, {"nested", nested}, {"layers", 2}};
    judge_checkpoint_forward({.world_size = 1, .options = toy});
    // Nothing but its parameters makes the result require a gradient.
    judge_checkpoint_forward(
        {.world_size = 1, .options = with(toy, {{"input_requires_grad", false}})});
    judge_checkpoint_forward({.world_size = 1, .options = with(toy, {{"frozen", {"layers"}}})});
  }
  judge_checkpoint_forward({.world_size = 1,
                            .options = {{"model", "toy"},
                                        {"input_requires_grad", false},
                                        {"layers", 2},
                                        {"frozen", {"layers"}}}});
  judge_checkpoint_forward(
      {.world_size = 1, .options = {{"model", "toy"}, {"width", 40}, {"rows", 50}}});
}

TEST_CASE("Backward runs each block once more, and gives the same bits", "[8.5]") {
  judge_checkpoint_backward({.world_size = 1, .options = Json::object()});
  judge_checkpoint_backward({.world_size = 1, .options = {{"layers", 3}, {"width", 32}}});
  judge_checkpoint_backward({.world_size = 1, .options = {{"tied", true}}});
  judge_checkpoint_backward(
      {.world_size = 1, .options = {{"frozen", {"model.layers.0.mlp", "model.embed_tokens"}}}});
}

TEST_CASE("Training with checkpointed blocks gives the bits of a single process", "[8.5]") {
  const Json inside = {{"checkpoint", "inside"}, {"micro_batches", 4}, {"clip", 0.5}};
  for (const int world_size : worlds({1, 2, 4})) {
    judge_checkpoint_training(
        {.world_size = world_size, .delivery = Delivery::lazy, .options = inside});
  }
  judge_checkpoint_training({.world_size = 2, .options = with(inside, {{"per_reduction", 2}})});
  judge_checkpoint_training({.world_size = 2, .options = with(inside, {{"param", "bfloat16"}})});
  judge_checkpoint_training(
      {.world_size = 4, .options = with(inside, {{"group", 2}, {"depth", 0}})});
}

TEST_CASE("The peak of memory with checkpointed blocks matches the formula", "[8.5]") {
  const Json wide = {{"width", 64},      {"ffn", 170},
                     {"vocabulary", 96}, {"checkpoint", "inside"},
                     {"layers", 4},      {"micro_batches", 4}};
  for (const int world_size : worlds({1, 2, 4})) {
    judge_checkpoint_memory({.world_size = world_size, .options = wide});
  }
}

TEST_CASE("A checkpoint around a unit: what the scheduler and the reducer see", "[8.6]") {
  for (const int world_size : worlds({1, 2, 3})) {
    for (const int depth : {0, 1}) {
      judge_around({.world_size = world_size,
                    .delivery = Delivery::lazy,
                    .options = {{"model", "toy"}, {"depth", depth}}});
    }
  }
  judge_around({.world_size = 2, .options = {{"model", "toy"}, {"layers", 5}}});
}

TEST_CASE("A checkpoint around a unit that forward calls twice", "[8.6]") {
  for (const int depth : {0, 1}) {
    judge_around({.world_size = 2,
                  .options = {{"model", "toy"}, {"depth", depth}, {"order", {0, 1, 0, 2}}}});
  }
}

TEST_CASE("Training with a checkpoint around each block gives the same bits", "[8.6]") {
  const Json around = {{"checkpoint", "around"}, {"micro_batches", 4}, {"clip", 0.5}};
  for (const int world_size : worlds({1, 2, 4})) {
    judge_checkpoint_training(
        {.world_size = world_size, .delivery = Delivery::lazy, .options = around});
  }
  judge_checkpoint_training({.world_size = 2, .options = with(around, {{"depth", 0}})});
  judge_checkpoint_memory(
      {.world_size = 2,
       .options = with(around, {{"width", 64}, {"ffn", 170}, {"vocabulary", 96}, {"layers", 4}})});
}
