// Task 4: sharded gradients are those of a single process, to the last bit when W is a power of
// two.
#include "support/catch.h"
#include "support/reshard.h"
#include "support/toy.h"

using namespace fsdp;
using namespace fsdp::testing;

namespace {

struct Model {
  const char* what;
  ToyConfig config;
  std::vector<int> order;
};

const std::vector<int> kAll = {0, 1, 2};

const std::vector<Model> kModels = {
    {"odd sizes", {.width = 5}, kAll},
    {"units smaller than W", {.width = 1}, kAll},
    {"a root with parameters", {.width = 4, .root_weight = true}, kAll},
    {"tied weights", {.width = 5, .tied = true}, kAll},
    {"unused parameters", {.width = 3, .unused = true}, kAll},
    {"nested modules", {.width = 3, .nested = true}, kAll},
    {"a unit that is never called", {.width = 5}, {0, 2}},
    {"the first unit is never called", {.width = 5}, {1, 2}},
    {"the last unit is never called", {.width = 5}, {0, 1}},
    {"a unit called twice in a row", {.width = 5}, {0, 1, 1, 2}},
    {"a unit called twice, others in between", {.width = 5}, {0, 1, 2, 0}},
    {"the last unit called twice", {.width = 5}, {2, 0, 1, 2}},
    {"frozen at the bottom", {.width = 5, .frozen = {"layers.0"}}, kAll},
    {"frozen in the middle", {.width = 5, .frozen = {"layers.1"}}, kAll},
    {"frozen at the top", {.width = 5, .frozen = {"layers.2"}}, kAll},
    {"all but the last frozen", {.width = 5, .frozen = {"layers.0", "layers.1"}}, kAll},
    {"all but the first frozen", {.width = 5, .frozen = {"layers.1", "layers.2"}}, kAll},
    {"a frozen weight", {.width = 5, .frozen = {"layers.1.weight"}}, kAll},
    {"a frozen bias and an unused parameter",
     {.width = 5, .unused = true, .frozen = {"layers.0.bias"}},
     kAll},
    {"a frozen unit called twice", {.width = 5, .frozen = {"layers.1"}}, {0, 1, 1, 2}},
};

ToyRun run_of(const Model& model) {
  ToyRun run;
  run.model = model.config;
  run.micro_batches = 8;
  run.steps = 2;
  run.order = [order = model.order](int) { return order; };
  return run;
}

}  // namespace

TEST_CASE("Gradients have the bits of a single process", "[4.1][4.5][4.2][4.3][4.4][4.6][4.7]") {
  const Model model = GENERATE(from_range(kModels));
  ToyRun run = run_of(model);
  const ToyResult expected = run_single(run);
  for (const int world_size : {1, 2, 4}) {
    for (const bool no_sync : {false, true}) {
      run.no_sync = no_sync;
      run.sharding.prefetch_depth = no_sync ? 0 : 1;
      const ToyResult seen = run_sharded(run, world_size);
      CAPTURE(model.what, world_size, no_sync);
      CHECK(difference(seen.gradients, expected.gradients) == "");
      CHECK(difference(seen.parameters, expected.parameters) == "");
    }
  }
}

TEST_CASE("Gradients do not depend on how parameters are kept between the passes",
          "[4.1][4.5][4.6]") {
  const Model model = GENERATE(from_range(kModels));
  const int group = GENERATE(1, 2);
  ToyRun run = run_of(model);
  run.sharding.reshard_after_forward = reshard_of(group);
  const ToyResult seen = run_sharded(run, 4);
  const ToyResult expected = run_single(run);
  CAPTURE(model.what, group);
  CHECK(difference(seen.gradients, expected.gradients) == "");
  CHECK(difference(seen.parameters, expected.parameters) == "");
}

TEST_CASE("At three ranks gradients are right, though not to the last bit", "[4.3][4.7]") {
  const Model model = GENERATE(from_range(kModels));
  const bool no_sync = GENERATE(false, true);
  ToyRun run = run_of(model);
  run.micro_batches = 6;
  run.no_sync = no_sync;
  const ToyResult expected = run_single(run);
  const ToyResult seen = run_sharded(run, 3);
  CAPTURE(model.what, no_sync);
  CHECK(relative_difference(seen.gradients, expected.gradients) < 1e-5);
  CHECK(difference(run_sharded(run, 3).gradients, seen.gradients) == "");  // deterministic
}

TEST_CASE("What takes no part has a gradient of +0", "[4.2][4.6]") {
  ToyRun run;
  run.model.unused = true;
  run.order = [](int) { return std::vector<int>{0, 2}; };
  const int world_size = GENERATE(1, 2, 3);
  run.micro_batches = world_size;
  const ToyResult seen = run_sharded(run, world_size);
  const auto is_plus_zero = [](const std::vector<float>& values) {
    return Values{{"", values}} == Values{{"", std::vector<float>(values.size(), 0.0F)}} &&
           difference({{"", values}}, {{"", std::vector<float>(values.size(), 0.0F)}}) == "";
  };
  CHECK(is_plus_zero(seen.gradients.at("0/layers.0.spare")));
  CHECK(is_plus_zero(seen.gradients.at("0/layers.1.weight")));
  CHECK(is_plus_zero(seen.gradients.at("0/layers.1.spare")));
  CHECK(!is_plus_zero(seen.gradients.at("0/layers.0.weight")));
  CHECK(!is_plus_zero(seen.gradients.at("0/layers.2.bias")));
}

TEST_CASE("A forward whose loss is dropped does not disturb the backward of the next",
          "[4.5][4.6]") {
  const auto gradient = [](bool with_dropped) {
    return on_ranks(2, [&](ProcessGroup& group) {
      ShardedToy toy({}, group);
      toy.sharded->begin_step({});
      if (with_dropped) toy.loss(5);
      toy.loss(0).backward();
      toy.sharded->end_micro_step();
      toy.sharded->finish_gradients();
      std::vector<std::vector<float>> gradients;
      for (const auto& unit : toy.sharded->units()) {
        FSDP_CHECK(unit->state() == ShardedUnit::State::sharded, "{} is left", unit->name());
        gradients.push_back(unit->flat_parameters()[0]->shard_grad().to_vector<float>());
      }
      return gradients;
    });
  };
  CHECK(gradient(true) == gradient(false));
}
