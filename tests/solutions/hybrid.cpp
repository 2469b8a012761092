// Hybrid sharding: a mesh of replicas agrees with a single process in every bit.
#include "comm/world.h"
#include "nn/lora.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/training.h"
#include "task8_beyond/mesh.h"

#include <vector>

namespace fsdp::testing::hybrid_test {
namespace {

struct Mesh {
  int replicas;
  int shards;
};

TrainingCase over(const Mesh& mesh, const TrainingCase& base, bool no_sync = false) {
  TrainingCase options = base.spread(Strategy::fsdp, mesh.replicas * mesh.shards, no_sync);
  options.recipe.replicas = mesh.replicas;
  return options;
}

}  // namespace

TEST_CASE("A mesh of replicas equals a single process in every bit") {
  const std::vector<optim::MixedPrecision> policies = {
      {},
      {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32},
      {.param_dtype = DType::bfloat16, .reduce_dtype = {}}};
  for (const optim::MixedPrecision& policy : policies) {
    TrainingCase base;
    base.steps = FSDP_SANITIZED ? 2 : 8;
    base.recipe.clip = 0.5;
    base.recipe.precision = policy;
    const TrainingResult expected = train(base);
    for (const Mesh mesh : {Mesh{2, 2}, {4, 2}, {2, 4}, {2, 1}, {1, 2}, {8, 1}}) {
      for (const bool no_sync : {false, true}) {
        for (const int depth : {0, 1}) {
          TrainingCase options = over(mesh, base, no_sync);
          options.recipe.sharding.prefetch_depth = depth;
          if (no_sync) options.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
          if (mesh.shards == 4 && depth == 1)
            options.recipe.sharding.reshard_after_forward = ReshardAfterForward::within(2);
          CAPTURE(mesh.replicas, mesh.shards, no_sync, depth);
          CHECK(difference(train(options), expected) == "");
        }
      }
    }
  }
}

TEST_CASE("Three replicas of two shards sum in the canonical order too") {
  TrainingCase base;
  base.recipe.micro_steps = 6;
  base.recipe.clip = 0.5;
  CHECK(difference(train(over({3, 2}, base)), train(base)) == "");
}

TEST_CASE("A mesh with ignored, frozen and tied parameters has the norm of a single process") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  const std::string what = GENERATE("ignored", "frozen", "tied", "all");
  if (what == "frozen" || what == "all") {
    base.recipe.frozen = {"model.embed_tokens", "model.layers.0", "model.layers.1.mlp.gate_proj"};
  }
  base.model.tie_word_embeddings = what == "tied" || what == "all";
  const TrainingResult expected = train(base);
  for (const Mesh mesh : {Mesh{2, 2}, {4, 2}, {2, 4}}) {
    TrainingCase options = over(mesh, base);
    if (what == "ignored" || what == "all") {
      options.recipe.sharding.ignored = {"model.norm", "model.layers.1.mlp.up_proj.weight"};
    }
    CAPTURE(what, mesh.replicas, mesh.shards);
    CHECK(difference(train(options), expected) == "");
  }
}

TEST_CASE("One norm of sharded, replicated, frozen, tied and LoRA parameters, at every mesh") {
  TrainingCase base;
  base.recipe.clip = 0.02;  // below every norm
  base.model.tie_word_embeddings = true;
  // As a user may mix them. With LoRA in the recipe, adapters alone are trained.
  base.change_model = [](nn::TransformerLM& model) {
    nn::add_lora(model, {.rank = 3, .targets = {"q_proj", "v_proj"}});
  };
  base.recipe.frozen = {"model.layers"};  // most of layer 0, and of layer 1 attention and norms
  base.recipe.trained = {"model.layers.1.mlp"};
  for (const char* adapted :
       {"0.self_attn.q_proj", "0.self_attn.v_proj", "1.self_attn.q_proj", "1.self_attn.v_proj"}) {
    base.recipe.trained.push_back(std::string("model.layers.") + adapted + ".lora_");
  }
  const bool no_sync = GENERATE(false, true);
  if (GENERATE(false, true))
    base.recipe.precision = {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32};
  const TrainingResult expected = train(base.spread(Strategy::single, 1, no_sync));
  for (const double norm : expected.norms) CHECK(norm > base.recipe.clip);
  for (const Mesh mesh : {Mesh{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 2}, {4, 2}, {2, 4}}) {
    TrainingCase options = over(mesh, base, no_sync);
    options.recipe.sharding.ignored = {"model.norm",
                                       "model.layers.0.self_attn"};  // two adapters are whole
    CAPTURE(mesh.replicas, mesh.shards, no_sync);
    CHECK(difference(train(options), expected) == "");
    options.recipe.sharding.ignored.emplace_back("model.embed_tokens");  // which is tied
    CHECK(difference(train(options), expected) == "");
  }
}

TEST_CASE("A checkpoint goes from a mesh to shards and to another mesh") {
  TrainingCase base;
  base.steps = 4;
  base.recipe.clip = 0.5;
  const TrainingResult expected = train(base);
  for (const auto& [first, second] : {std::pair<Mesh, Mesh>{{2, 2}, {1, 4}},
                                      {{1, 4}, {2, 2}},
                                      {{2, 2}, {1, 1}},
                                      {{4, 2}, {2, 1}}}) {
    TrainingCase before = over(first, base), after = over(second, base);
    before.steps = after.steps = 2;
    const TemporaryFolder folder;
    const TrainingResult joined = train_in_parts({before, after}, folder.path());
    // Only the first replica writes.
    const auto saved = io::CheckpointFolder(folder.path()).latest();
    REQUIRE(saved);
    CHECK(io::SliceReader(*saved).written_by() == second.shards);
    CAPTURE(first.replicas, first.shards, second.replicas, second.shards);
    CHECK(difference(joined, expected) == "");
  }
}

TEST_CASE("A mesh divides its ranks, or says why not") {
  run_ranks(6, [](ProcessGroup& world) {
    const auto group = make_mesh(world, 2);
    FSDP_CHECK(group->size() == 3 && group->rank() == world.rank() % 3, "shards");
    FSDP_CHECK(group->replicas()->size() == 2, "replicas");
    FSDP_CHECK(replica_of(*group) == world.rank() / 3 && replica_count(*group) == 2, "replica");
    FSDP_CHECK(replica_of(world) == 0 && replica_count(world) == 1, "no mesh");
    const std::string refusal = message_of<Error>([&] { make_mesh(world, 4); });
    FSDP_CHECK(refusal.find("4 must divide 6") != std::string::npos, "{}", refusal);
  });
}

}  // namespace fsdp::testing::hybrid_test
