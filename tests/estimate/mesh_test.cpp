// Meshes: replicas change no shard.
#include "estimate/modes.h"

namespace fsdp::estimate {

TEST_CASE("fake, real and formula have the same bytes on a mesh", "[estimator][mesh]") {
  for (const char* ranks : {"4", "6"}) {
    check_modes({"--model.preset=tiny", "--training.local_batch_size=1", "--training.seq_len=17",
                 "--parallel.strategy=fsdp", std::string("--parallel.ranks=") + ranks,
                 "--parallel.data_parallel_replicate_degree=2"});
  }
}

TEST_CASE("replicas leave the sharded classes as they are", "[estimator][mesh]") {
  const auto at_rest = [](int replicas) {
    const Words words = {
        "--model.preset=tiny", "--training.local_batch_size=1", "--training.seq_len=8",
        "--parallelism.data_parallel_shard_degree=3",
        "--parallelism.data_parallel_replicate_degree=" + std::to_string(replicas)};
    return estimated(words).run.iterations[1].after;
  };
  CHECK(at_rest(1) == at_rest(2));
  CHECK(at_rest(1) == at_rest(5));
}

TEST_CASE("fake mode knows thousands of ranks", "[estimator][mesh]") {
  const Estimate made =
      estimated({"--model.preset=nano", "--parallel.strategy=fsdp", "--parallel.ranks=16384",
                 "--parallel.data_parallel_replicate_degree=16"});
  CHECK(made.opinion.difference == "");
}

}  // namespace fsdp::estimate
