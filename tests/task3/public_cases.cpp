// The public cases of task 3.
#include "grader/expect.h"
#include "support/catch.h"
#include "task3/cases.h"

using namespace fsdp::graded;

namespace {

const std::vector<Json> kLayers = {
    {{"width", 5}},                   // 30 elements: W = 4 pads two
    {{"width", 1}},                   // 2 elements: empty shards at W = 3, 4
    {{"width", 3}, {"spare", true}},  // three parameters
    {{"width", 4}, {"frozen", Json::array({"layers.0.bias"})}},  // two flat parameters
};

/// Runs `judge` on every layer and world.
template <class Judge>
void everywhere(const Judge& judge, Delivery delivery = Delivery::plain,
                const Json& more = Json::object()) {
  for (const Json& layer : kLayers) {
    for (const int world_size : worlds({1, 2, 3, 4})) {
      for (const std::uint64_t seed : seeds({1})) {
        Json options = layer;
        options.update(more);
        judge({.world_size = world_size, .seed = seed, .delivery = delivery, .options = options});
      }
    }
  }
}

}  // namespace

TEST_CASE("start_unshard gathers into the flat vector and does not wait", "[3.1]") {
  everywhere(judge_start);
}

TEST_CASE("start_unshard needs no memory but the flat vector", "[3.1]") {
  for (const int world_size : worlds({2, 3, 4})) {
    judge_start_peak({.world_size = world_size, .options = {{"width", 128}}});
  }
}

TEST_CASE("finish_unshard waits for what start_unshard began", "[3.2]") {
  everywhere(judge_finish, Delivery::lazy);
}

TEST_CASE("finish_unshard by itself gathers too", "[3.2]") {
  everywhere(judge_finish, Delivery::lazy, {{"started", false}});
}

TEST_CASE("reshard frees the bytes and keeps the views", "[3.3]") { everywhere(judge_reshard); }

TEST_CASE("reshard waits for a gather in flight", "[3.3]") {
  everywhere(judge_reshard, Delivery::lazy, {{"when", "unsharding"}});
}

TEST_CASE("Within a subgroup 1/s of the parameters stays", "[3.4]") {
  for (const auto& [world_size, group] : {std::pair{4, 2}, {8, 2}, {8, 4}, {6, 3}}) {
    for (const int width : {1, 5, 8}) {
      judge_subgroup({.world_size = world_size,
                      .delivery = Delivery::lazy,
                      .options = {{"width", width}, {"group", group}}});
    }
  }
}

TEST_CASE("The hooks gather before a unit computes and reshard after it", "[3.5]") {
  for (const int world_size : worlds({1, 2, 3, 4})) {
    for (const Delivery delivery : {Delivery::plain, Delivery::lazy}) {
      judge_hooks({.world_size = world_size,
                   .delivery = delivery,
                   .options = {{"width", 5}, {"layers", 3}}});
    }
  }
}

TEST_CASE("What is kept until backward follows the options", "[3.5]") {
  for (const int world_size : worlds({2, 3})) {
    judge_hooks({.world_size = world_size, .options = {{"layers", 3}, {"keep", {2}}}});
    judge_hooks({.world_size = world_size, .options = {{"layers", 3}, {"group", 1}}});
  }
  judge_hooks({.world_size = 4, .options = {{"layers", 3}, {"group", 2}, {"keep", {0}}}});
}

TEST_CASE("Without a scheduler the hooks work too", "[3.5]") {
  judge_hooks({.world_size = 2, .options = {{"layers", 2}, {"scheduler", false}}});
}
