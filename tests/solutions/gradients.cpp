// Whatever a model does, sharded gradients have the bits of a single process, and a backward leaves
// nothing else behind.
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

/// Nothing of a backward is left but sharded gradients.
void check_clean(const ShardedModel& model) {
  for (const auto& unit : model.units()) {
    FSDP_CHECK(unit->state() == ShardedUnit::State::sharded, "{} is not sharded", unit->name());
    for (const auto& flat : unit->flat_parameters()) {
      FSDP_CHECK(!flat->full().storage()->is_allocated(), "{} holds parameters", unit->name());
      FSDP_CHECK(!flat->requires_grad() || !flat->full_grad().storage()->is_allocated(),
                 "{} holds a full gradient", unit->name());
    }
  }
  const Breakdown& held = Context::current().tracker().current();
  for (const MemoryKind kind :
       {MemoryKind::unsharded_param, MemoryKind::unsharded_grad, MemoryKind::reduce_scatter}) {
    FSDP_CHECK(held[kind] == 0, "after backward: {}", to_string(held));
  }
}

}  // namespace

TEST_CASE("Whatever a model does, its gradients have the bits of a single process") {
  const Model model = GENERATE(from_range(kModels));
  ToyRun run = run_of(model);
  const ToyResult expected = run_single(run);
  for (const int world_size : {1, 2, 4}) {
    for (const int group : {0, 1, 2}) {
      if (group > 1 && world_size < 4) continue;
      for (const bool no_sync : {false, true}) {
        run.no_sync = no_sync;
        run.sharding.prefetch_depth = no_sync ? 0 : 1;
        run.sharding.reshard_after_forward = reshard_of(group);
        run.after_backward = [&](Toy&, ShardedModel& sharded) {
          if (!no_sync) check_clean(sharded);  // else sums of full gradients are kept
        };
        const ToyResult seen = run_sharded(run, world_size);
        CAPTURE(model.what, world_size, group, no_sync);
        CHECK(difference(seen.gradients, expected.gradients) == "");
        CHECK(difference(seen.parameters, expected.parameters) == "");
      }
    }
  }
}

TEST_CASE("begin_step recovers from a backward that failed at any unit") {
  const int layer = GENERATE(0, 1, 2);
  const bool no_sync = GENERATE(false, true);
  const auto gradient = [&](bool fails_first) {
    return on_ranks(2, [&](ProcessGroup& group) {
      ShardedToy toy({}, group);
      if (fails_first) {
        toy.iteration(0);
        nn::Module& module = *toy.model->layers()[static_cast<std::size_t>(layer)];
        const int hook = module.register_full_backward_hook([](nn::Module&) { fail("no power"); });
        toy.sharded->begin_step({2, no_sync ? 2 : 1});
        const std::string message = message_of<Error>([&] { toy.loss(1).backward(); });
        FSDP_CHECK(message == "no power", "'{}'", message);
        module.remove_hook(hook);
      }
      toy.sharded->begin_step({});
      check_clean(*toy.sharded);
      toy.loss(2).backward();
      toy.sharded->end_micro_step();
      toy.sharded->finish_gradients();
      return toy.sharded->units()[1]->flat_parameters()[0]->shard_grad().to_vector<float>();
    });
  };
  CHECK(gradient(true) == gradient(false));
}
