// When the shards change, nothing that was gathered from the old ones is used any more; and they do
// not change before everything has been checked.

#include "comm/thread_world.h"
#include "io/sharded_checkpoint.h"
#include "support/catch.h"
#include "support/reshard.h"
#include "support/temporary_folder.h"
#include "support/toy_model.h"
#include "task7_integration/integration.h"

using namespace fsdp;
using namespace fsdp::testing;

namespace {

constexpr int kWidth = 5;

std::shared_ptr<ProcessGroup> lent(ProcessGroup& group) {
  return {&group, [](ProcessGroup*) {}};
}

std::unique_ptr<ShardedModel> shard_toy(Toy& model, ProcessGroup& group,
                                        const FullyShardOptions& options = {}) {
  auto sharded = fully_shard(model, lent(group), options);
  sharded->attach_optimizer([] { return std::make_shared<optim::AdamW>(optim::AdamW::Options{}); });
  return sharded;
}

float loss_without_tape(Toy& model) {
  const NoGradScope no_tape;
  return static_cast<float>(toy_loss(model, kWidth, 7, 0).data().item());
}

std::vector<std::vector<float>> values_of(const ShardedModel& model) {
  std::vector<std::vector<float>> values;
  for (const auto& unit : model.units()) {
    for (const auto& flat : unit->flat_parameters()) {
      values.push_back(flat->shard().to_vector<float>());
    }
  }
  return values;
}

}  // namespace

TEST_CASE("A unit that a forward left unsharded does not outlive a change of the shards") {
  const std::string change = GENERATE("load_full", "load_checkpoint", "step");
  const bool has_root = GENERATE(false, true);
  const int reshard = GENERATE(0, 1, 2);  // always, never, within(2)
  CAPTURE(change, has_root, reshard);
  const ToyConfig config{.width = kWidth, .root_weight = has_root};
  const TemporaryFolder home;
  const io::CheckpointFolder checkpoints(home / "checkpoints");
  run_ranks({.world_size = 2, .seed = 5}, [&](ProcessGroup& group) {
    Toy model(config);
    const auto sharded = shard_toy(model, group);
    sharded->save_full(home / "full");
    sharded->save_checkpoint(checkpoints, 0, {});
  });
  run_ranks({.world_size = 4, .seed = 6}, [&](ProcessGroup& group) {
    Toy model(config);
    FullyShardOptions options;
    options.reshard_after_forward = reshard_of(reshard);
    const auto sharded = shard_toy(model, group, options);
    sharded->begin_step({});
    toy_loss(model, kWidth, 0, group.rank()).backward();
    sharded->end_micro_step();
    sharded->finish_gradients();
    const float before = loss_without_tape(model);
    toy_loss(model, kWidth, 0, 0);  // recorded, and no backward follows
    if (change == "load_full") sharded->load_full(home / "full");
    if (change == "load_checkpoint") sharded->load_checkpoint(checkpoints.final(0));
    if (change == "step") sharded->step(0.1);
    // Without a tape every unit is resharded, so the second answer comes from the shards alone.
    const float first = loss_without_tape(model);
    const float second = loss_without_tape(model);
    FSDP_CHECK(first == second, "rank {}: {} and then {}, of the same shards", group.rank(), first,
               second);
    FSDP_CHECK(first != before, "rank {}: nothing has changed", group.rank());
  });
}

TEST_CASE("A checkpoint without a count of steps is refused before anything is read") {
  const TemporaryFolder home;
  run_ranks({.world_size = 3, .seed = 5}, [&](ProcessGroup& group) {
    Toy model(ToyConfig{.width = kWidth});
    const auto sharded = shard_toy(model, group);
    io::write_slices(home.path(), group.rank(), group.size(),
                     sharded->state_slices(/*with_replicated=*/group.rank() == 0),
                     {{"note", "no count"}});
  });
  run_ranks({.world_size = 2, .seed = 6}, [&](ProcessGroup& group) {
    Toy model(ToyConfig{.width = kWidth});
    const auto sharded = shard_toy(model, group);
    const auto before = values_of(*sharded);
    const std::string message =
        message_of<InputError>([&] { sharded->load_checkpoint(home.path()); });
    FSDP_CHECK(message.find("optimizer_steps") != std::string::npos, "said: {}", message);
    FSDP_CHECK(values_of(*sharded) == before, "rank {}: the shards have changed", group.rank());
  });
}
