// Checkpointed modules with the traits that make hooks and gradients difficult.
#include "parallel/ddp.h"
#include "support/catch.h"
#include "support/toy.h"
#include "task8_beyond/checkpoint.h"

#include <string>
#include <utility>
#include <vector>

namespace fsdp::testing::checkpointed_toys {
namespace {

enum class Nesting { inside, around };

struct NamedToy {
  std::string name;
  ToyRun run;
};

std::vector<NamedToy> toys() {
  std::vector<NamedToy> all;
  const auto add = [&](const std::string& name, const ToyConfig& model) -> ToyRun& {
    ToyRun run;
    run.model = model;
    all.push_back({name, run});
    return all.back().run;
  };
  add("tied", {.tied = true});
  add("one weight for all", {.root_weight = true, .shared = true});
  add("unused parameters", {.unused = true});
  add("nested", {.root_weight = true, .nested = true});
  add("frozen", {.frozen = {"layers.0", "layers.1.bias"}});
  add("called twice", {}).order = [](int) { return std::vector<int>{0, 1, 0, 2, 1}; };
  ToyRun& changing = add("other layers in every step", {});
  changing.steps = 4;
  changing.order = [](int step) {
    return std::vector<std::vector<int>>{
        {0, 1, 2}, {2, 0}, {1}, {1, 2, 0, 1}}[static_cast<std::size_t>(step)];
  };
  return all;
}

/// The gradients of a step over W ranks with DDP, by path.
Values ddp_gradients(const ToyRun& run, int world_size, bool checkpoints) {
  const auto of_ranks = on_ranks({.world_size = world_size, .seed = 11}, [&](ProcessGroup& group) {
    Toy model(run.model);
    if (checkpoints) {
      for (const auto& layer : model.layers()) checkpoint(*layer);
    }
    if (run.order) model.order = run.order(0);
    parallel::DdpGradients engine(model.variables(), borrowed(group), 64);
    const optim::StepPlan plan{run.micro_batches / world_size, 1};
    engine.begin_step(plan);
    for (int m = 0; m < plan.micro_steps; ++m) {
      const auto j = static_cast<int>(plan.micro_batch(m, group.rank(), world_size));
      toy_loss(model, run.model.width, 0, j).backward();
      engine.end_micro_step();
    }
    engine.finish_gradients();
    Values gradients;
    for (const optim::Piece& piece : engine.pieces()) {
      gradients["0/" + piece.key] = piece.grad.to_vector<float>();
    }
    return gradients;
  });
  return of_ranks.back();
}

}  // namespace

TEST_CASE("Checkpointed units have a single process's bits, whatever they share or leave out") {
  for (const auto& [name, plain] : toys()) {
    const ToyResult expected = run_single(plain);
    for (const Nesting nesting : {Nesting::inside, Nesting::around}) {
      // The root's unit, if there is one, contains the others.
      ToyRun run = plain;
      run.prepare = [&](Toy& model, ShardedModel& sharded) {
        for (const auto& layer : model.layers()) {
          if (nesting == Nesting::inside) checkpoint(*layer);
        }
        for (const auto& unit : sharded.units()) {
          if (nesting == Nesting::around && unit->name() != "root") checkpoint_around(*unit);
        }
      };
      for (const int world_size : {1, 2, 4}) {
        for (const int depth : {0, 1, 2}) {
          run.sharding.prefetch_depth = depth;
          run.no_sync = depth == 2;
          CAPTURE(name, static_cast<int>(nesting), world_size, depth);
          const ToyResult result = run_sharded(run, world_size);
          CHECK(difference(result.gradients, expected.gradients) == "");
          CHECK(difference(result.parameters, expected.parameters) == "");
        }
      }
    }
  }
}

TEST_CASE("DDP reduces the weights of checkpointed modules once, whatever they share") {
  for (const auto& [name, run] : toys()) {
    if (run.steps > 1) continue;
    const Values expected = run_single(run).gradients;
    for (const int world_size : {1, 2, 4}) {
      CAPTURE(name, world_size);
      CHECK(difference(ddp_gradients(run, world_size, true), expected) == "");
    }
  }
}

TEST_CASE("When the sharded model is gone, a checkpointed unit fails like any other") {
  on_ranks(2, [](ProcessGroup& group) {
    Toy model({});
    {
      const auto sharded = fully_shard(model, borrowed(group));
      for (const auto& unit : sharded->units()) checkpoint_around(*unit);
    }
    const std::string failure = message_of<Error>([&] { toy_loss(model, 5, 0, 0).backward(); });
    FSDP_CHECK(!failure.empty(), "its parameters are still sharded");
    return 0;
  });
}

}  // namespace fsdp::testing::checkpointed_toys
