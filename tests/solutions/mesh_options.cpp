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
  Checkpointed checkpointed = Checkpointed::none;
  optim::Offload offload;
};

const std::vector<Options> kOptions = {
    {.checkpointed = Checkpointed::inside, .offload = {}},
    {.checkpointed = Checkpointed::around, .offload = {}},
    {.offload = {.params = true}},
    {.offload = {.params = true, .grads = true}},
    {.checkpointed = Checkpointed::inside, .offload = {.params = true, .grads = true}},
    {.checkpointed = Checkpointed::around, .offload = {.params = true}}};

TrainingCase over(const Mesh& mesh, const Options& options, TrainingCase training) {
  training.strategy = Strategy::fsdp;
  training.world_size = mesh.replicas * mesh.shards;
  training.replicas = mesh.replicas;
  training.checkpointed = options.checkpointed;
  training.offload = options.offload;
  return training;
}

}  // namespace

TEST_CASE("Meshes with checkpointed blocks and offloaded shards equal a single process") {
  const std::vector<optim::MixedPrecision> policies = {
      {}, {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32}};
  for (const optim::MixedPrecision& policy : policies) {
    TrainingCase base;
    base.steps = FSDP_SANITIZED ? 2 : 4;
    base.clip = 0.5;
    base.precision = policy;
    const TrainingResult expected = train(base);
    for (const Mesh& mesh : kMeshes) {
      for (const Options& options : kOptions) {
        for (const bool no_sync : {false, true}) {
          TrainingCase training = over(mesh, options, base);
          training.no_sync = no_sync;
          training.meta_start = no_sync;
          training.prefetch_depth = no_sync ? 0 : 1;
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
  base.clip = 0.5;
  base.steps = 7;
  base.precision = {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32};
  const TrainingResult expected = train(base);
  const TemporaryFolder folder;
  // One training, each of whose steps runs in another place.
  const std::vector<std::pair<Mesh, Options>> places = {
      {{2, 2}, kOptions[0]}, {{4, 2}, kOptions[3]}, {{1, 2}, {}},         {{2, 4}, kOptions[5]},
      {{2, 2}, kOptions[4]}, {{1, 4}, kOptions[1]}, {{4, 2}, kOptions[2]}};
  TrainingResult joined;
  for (std::size_t step = 0; step < places.size(); ++step) {
    TrainingCase training = over(places[step].first, places[step].second, base);
    training.steps = 1;
    training.first_step = static_cast<int>(step);
    training.no_sync = step % 2 == 0;
    training.save_to = folder.path();
    if (step > 0) {
      training.load_from = io::CheckpointFolder(folder.path()).latest();
      training.seed_of_model = 77;  // what is loaded must not come from initialization
    }
    const TrainingResult rest = train(training);
    joined.losses.insert(joined.losses.end(), rest.losses.begin(), rest.losses.end());
    joined.norms.insert(joined.norms.end(), rest.norms.begin(), rest.norms.end());
    joined.state = rest.state;
  }
  CHECK(difference(joined, expected) == "");
}

}  // namespace fsdp::testing::mesh_options_test
