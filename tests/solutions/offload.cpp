// Offload: shards in a memory of their own, with the bits of a single process.
#include "autograd/functions.h"
#include "comm/fake_group.h"
#include "comm/world.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/training.h"
#include "task8_beyond/mesh.h"

namespace fsdp::testing::offload_test {
namespace {

constexpr optim::Offload kParams{.params = true};
constexpr optim::Offload kAll{.params = true, .grads = true};
constexpr int kSteps = FSDP_SANITIZED ? 3 : 8;

TrainingCase fsdp_of(const TrainingCase& base, int world_size, optim::Offload offload,
                     bool no_sync = false) {
  TrainingCase options = base.spread(Strategy::fsdp, world_size, no_sync);
  options.recipe.sharding.offload = offload;
  return options;
}

}  // namespace

TEST_CASE("With offload, FSDP equals a single process in every bit") {
  const optim::MixedPrecision policy = GENERATE(
      optim::MixedPrecision{},
      optim::MixedPrecision{.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32});
  TrainingCase base;
  base.steps = kSteps;
  base.recipe.clip = 0.5;
  base.recipe.precision = policy;
  const TrainingResult expected = train(base);
  for (const int world_size : {1, 2, 4, 8}) {
    for (const optim::Offload offload : {kParams, kAll}) {
      for (const bool no_sync : {false, true}) {
        TrainingCase options = fsdp_of(base, world_size, offload, no_sync);
        options.recipe.sharding.prefetch_depth = no_sync ? 2 : 1;
        CAPTURE(world_size, offload.grads, no_sync);
        CHECK(difference(train(options), expected) == "");
      }
    }
  }
}

TEST_CASE("Offload with other options changes no bit") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  base.model.tie_word_embeddings = GENERATE(false, true);
  const TrainingResult expected = train(base);
  for (const optim::Offload offload : {kParams, kAll}) {
    TrainingCase options = fsdp_of(base, 4, offload);
    CAPTURE(offload.grads, base.model.tie_word_embeddings);
    options.recipe.replicas = 2;
    CHECK(difference(train(options), expected) == "");
    options.recipe.replicas = 1;
    options.recipe.sharding.reshard_after_forward = ReshardAfterForward::within(2);
    CHECK(difference(train(options), expected) == "");
    options.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
    options.recipe.sharding.ignored = {"model.norm", "model.layers.1.mlp.up_proj.weight"};
    CHECK(difference(train(options), expected) == "");
  }
}

TEST_CASE("A checkpoint goes from offloaded to not offloaded shards, and back") {
  TrainingCase base;
  base.steps = 4;
  base.recipe.clip = 0.5;
  const TrainingResult expected = train(base);
  for (const auto& [first, second] :
       {std::pair<optim::Offload, optim::Offload>{kAll, {}}, {{}, kAll}, {kParams, kAll}}) {
    TrainingCase before = fsdp_of(base, 2, first), after = fsdp_of(base, 4, second);
    before.steps = after.steps = 2;
    const TemporaryFolder folder;
    const TrainingResult joined = train_in_parts({before, after}, folder.path());
    CAPTURE(first.params, first.grads, second.params, second.grads);
    CHECK(difference(joined, expected) == "");
  }
}

// By ShardedModel's own functions, which programs do not call.
TEST_CASE("A state is written from offloaded shards, and read into them, also over a mesh") {
  const bool is_full = GENERATE(true, false);
  const int replicas = GENERATE(1, 2);
  const optim::MixedPrecision policy =
      GENERATE(optim::MixedPrecision{},
               optim::MixedPrecision{.param_dtype = DType::bfloat16, .reduce_dtype = {}});
  const TemporaryFolder folder;
  const RankOptions ranks{.world_size = 2 * replicas, .seed = 3, .has_cpu_host = true};
  run_ranks(ranks, [&](ProcessGroup& world) {
    const auto group = replicas == 1 ? borrowed(world) : make_mesh(world, replicas);
    FullyShardOptions options;
    options.mixed_precision = policy;
    options.offload = kAll;
    nn::TransformerLM written(nn::TransformerConfig::nano());
    nn::TransformerLM read(nn::TransformerConfig::nano());  // other weights: drawn later
    const auto from = fully_shard(written, group, options);
    const auto to = fully_shard(read, group, options);
    const auto adamw = [] { return std::make_shared<optim::AdamW>(optim::AdamW::Options{}); };
    from->attach_optimizer(adamw);
    to->attach_optimizer(adamw);
    from->begin_step({});
    const MicroBatch micro = make_micro_batch(written.config(), 1, 1, 0, world.rank());
    cross_entropy(written(Variable(micro.tokens)), micro.targets).backward();
    from->end_micro_step();
    from->finish_gradients();
    from->step(1e-2);
    from->zero_grad();
    if (is_full) {
      from->save_full(folder.path() / "full");
      to->load_full(folder.path() / "full");
    } else {
      from->save_checkpoint(io::CheckpointFolder(folder.path()), 1, {});
      to->load_checkpoint(io::CheckpointFolder(folder.path()).final(1));
      const auto kept = from->state_slices(/*with_replicated=*/true),
                 loaded = to->state_slices(/*with_replicated=*/true);
      FSDP_CHECK(kept.size() == loaded.size(), "{} slices were loaded as {}", kept.size(),
                 loaded.size());
      for (std::size_t i = 0; i < kept.size(); ++i) {
        FSDP_CHECK(
            kept[i].name == loaded[i].name && ops::equal_bits(kept[i].values, loaded[i].values),
            "{} differs", kept[i].name);
      }
    }
    for (std::size_t unit = 0; unit < from->units().size(); ++unit) {
      const Tensor& a = from->units()[unit]->flat_parameters().front()->shard();
      const Tensor& b = to->units()[unit]->flat_parameters().front()->shard();
      FSDP_CHECK(a.device() == kCpuHost, "the shard is on {}", to_string(a.device()));
      FSDP_CHECK(ops::equal_bits(a, b), "unit {} differs", from->units()[unit]->name());
    }
  });
}

TEST_CASE("Offload is refused where it makes no sense, and the message says why") {
  nn::TransformerLM model(nn::TransformerConfig::nano());
  const auto group = std::make_shared<ProcessGroup>(make_fake_backend(0, 2));
  const auto refusal = [&](optim::Offload offload) {
    FullyShardOptions options;
    options.offload = offload;
    return message_of<Error>([&] { fully_shard(model, group, options); });
  };
  CHECK_THAT(refusal({.grads = true}), contains("needs offload of parameters"));
  CHECK_THAT(refusal(kParams), contains("offload on cpu: its memory is the host's memory"));
  CHECK_THAT(refusal({.optimizer = true}),
             contains("the shards of fully_shard() are the optimizer's"));
}

TEST_CASE("Offload of masters is refused where it makes no sense, and the message says why") {
  nn::TransformerLM model(nn::TransformerConfig::nano());
  const auto refusal = [&](optim::Offload offload) {
    return message_of<Error>([&] { optim::MasterWeights(model.variables(), {}, {}, {}, offload); });
  };
  CHECK_THAT(refusal({.params = true}), contains("offload of parameters needs shards"));
  CHECK_THAT(refusal({.grads = true}), contains("needs offload of the optimizer"));
  CHECK_THAT(refusal({.optimizer = true}), contains("its memory is the host's memory"));
  Context context({.has_cpu_host = true});
  const ContextScope scope(context);
  CHECK_THAT(refusal({.optimizer = true}), contains("is for masters in parts"));
}

}  // namespace fsdp::testing::offload_test
