// What a sharded model holds when it starts, what it writes, and what it computes after its shards
// have changed.
#include "comm/world.h"
#include "io/sharded_checkpoint.h"
#include "nn/generate.h"
#include "nn/transformer.h"
#include "support/catch.h"
#include "support/reshard.h"
#include "support/temporary_folder.h"
#include "support/toy.h"
#include "task7_integration/integration.h"

using namespace fsdp;
using namespace fsdp::testing;

namespace {

constexpr int kWidth = 5;

std::unique_ptr<ShardedModel> shard_toy(Toy& model, ProcessGroup& group,
                                        const FullyShardOptions& options = {}) {
  auto sharded = fully_shard(model, borrowed(group), options);
  sharded->attach_optimizer([] { return std::make_shared<optim::AdamW>(optim::AdamW::Options{}); });
  return sharded;
}

float loss_without_tape(Toy& model) {
  const NoGradScope no_tape;
  return static_cast<float>(toy_loss(model, kWidth, 7, 0).data().item());
}

}  // namespace

TEST_CASE("A sharded meta start holds nothing but shards, not even one unit") {
  run_ranks({.world_size = GENERATE(1, 2, 3, 4), .seed = 5}, [&](ProcessGroup& group) {
    MemoryTracker& tracker = Context::current().tracker();
    DeferredInit deferred;
    const auto model = deferred.build(
        [] { return std::make_shared<nn::TransformerLM>(nn::TransformerConfig::nano()); });
    tracker.reset_peak();
    FullyShardOptions options;
    options.deferred = &deferred;
    const auto sharded = fully_shard(*model, borrowed(group), options);
    const std::int64_t scratch = static_cast<std::int64_t>(kScratchBytes);
    FSDP_CHECK(tracker.peak_total() <= tracker.current_total() + scratch,
               "rank {} held {} bytes on the way to {}", group.rank(), tracker.peak_total(),
               tracker.current_total());
  });
}

// The first tokens come with kept keys and values; then the context slides.
TEST_CASE("A sharded model writes the text of the whole model") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  FullyShardOptions options;
  options.mixed_precision.param_dtype = dtype;
  const auto write = [](nn::Module& model) {
    Generator words(3);
    return nn::generate(model, {1, 2, 3}, 12, 8, {.temperature = 0.8, .top_k = 5}, words);
  };
  std::vector<std::int32_t> expected;
  {
    Context context({.seed = 5});
    ContextScope scope(context);
    nn::TransformerLM whole(nn::TransformerConfig::nano());
    whole.convert(dtype);
    expected = write(whole);
  }
  run_ranks({.world_size = GENERATE(1, 2, 3, 4), .seed = 5}, [&](ProcessGroup& group) {
    nn::TransformerLM model(nn::TransformerConfig::nano());
    const auto sharded = fully_shard(model, borrowed(group), options);
    FSDP_CHECK(write(model) == expected, "rank {} wrote something else", group.rank());
    for (const auto& unit : sharded->units()) {
      FSDP_CHECK(unit->state() == ShardedUnit::State::sharded, "unit {} is left unsharded",
                 unit->name());
    }
  });
}

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
