// A mesh of replicas with the other options that change where bytes are: a single process, FSDP,
// meshes, each of them with checkpointed blocks and with offloaded shards, agree in every bit.
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/training.h"

#include <utility>
#include <vector>

namespace fsdp::testing::mesh_options_test {
namespace {

struct Mesh {
  int replicas;
  int shards;
};

const std::vector<Mesh> kMeshes = {{1, 4}, {2, 2}, {4, 2}, {2, 4}};

/// What else is switched on.
struct Options {
  Checkpointing checkpointed = Checkpointing::none;
  optim::Offload offload;
};

const std::vector<Options> kOptions = {
    {.checkpointed = Checkpointing::inside, .offload = {}},
    {.checkpointed = Checkpointing::around, .offload = {}},
    {.offload = {.params = true}},
    {.offload = {.params = true, .grads = true}},
    {.checkpointed = Checkpointing::inside, .offload = {.params = true, .grads = true}},
    {.checkpointed = Checkpointing::around, .offload = {.params = true}}};

TrainingCase over(const Mesh& mesh, const Options& options, const TrainingCase& base,
                  bool no_sync) {
  TrainingCase training = base.spread(Strategy::fsdp, mesh.replicas * mesh.shards, no_sync);
  training.recipe.replicas = mesh.replicas;
  training.recipe.checkpointing = options.checkpointed;
  training.recipe.sharding.offload = options.offload;
  return training;
}

}  // namespace

TEST_CASE("Meshes with checkpointed blocks and offloaded shards equal a single process") {
  const std::vector<optim::MixedPrecision> policies = {
      {}, {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32}};
  for (const optim::MixedPrecision& policy : policies) {
    TrainingCase base;
    base.steps = FSDP_SANITIZED ? 2 : 4;
    base.recipe.clip = 0.5;
    base.recipe.precision = policy;
    const TrainingResult expected = train(base);
    for (const Mesh& mesh : kMeshes) {
      for (const Options& options : kOptions) {
        for (const bool no_sync : {false, true}) {
          TrainingCase training = over(mesh, options, base, no_sync);
          training.recipe.sharding.prefetch_depth = no_sync ? 0 : 1;
          CAPTURE(mesh.replicas, mesh.shards, static_cast<int>(options.checkpointed),
                  options.offload.params, options.offload.grads, no_sync);
          CHECK(difference(train(training), expected) == "");
        }
      }
    }
  }
}

TEST_CASE("A training goes on from a mesh with options as any other, and the other way round") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  base.steps = 7;
  base.recipe.precision = {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32};
  const TrainingResult expected = train(base);
  // One training, each of whose steps runs in another place.
  std::vector<TrainingCase> parts = {
      over({2, 2}, kOptions[0], base, true), over({4, 2}, kOptions[3], base, false),
      over({1, 2}, {}, base, true),          over({2, 4}, kOptions[5], base, false),
      over({2, 2}, kOptions[4], base, true), over({1, 4}, kOptions[1], base, false),
      over({4, 2}, kOptions[2], base, true)};
  for (TrainingCase& part : parts) part.steps = 1;
  const TemporaryFolder folder;
  const TrainingResult joined = train_in_parts(std::move(parts), folder.path());
  CHECK(difference(joined, expected) == "");
}

}  // namespace fsdp::testing::mesh_options_test
