// The promise of the project: one process and FSDP on any power of two of ranks agree in every bit
// of every loss, parameter and optimizer state.

#include "support/catch.h"
#include "support/training.h"

using namespace fsdp;
using namespace fsdp::testing;

namespace {

/// What a single process makes of the same model, data and options.
TrainingResult single(TrainingCase options) {
  options.strategy = Strategy::single;
  options.world_size = 1;
  return train(options);
}

TrainingCase fsdp_case(int world_size) {
  TrainingCase options;
  options.strategy = Strategy::fsdp;
  options.world_size = world_size;
  return options;
}

}  // namespace

TEST_CASE("FSDP equals a single process in every bit") {
  const TrainingResult expected = single({});
  for (const int world_size : {1, 2, 4, 8}) {
    for (const bool no_sync : {false, true}) {
      TrainingCase options = fsdp_case(world_size);
      options.no_sync = no_sync;
      CAPTURE(world_size, no_sync);
      CHECK(difference(train(options), expected) == "");
    }
  }
}

TEST_CASE("DDP equals a single process in every bit") {
  const TrainingResult expected = single({});
  for (const int world_size : {1, 2, 4, 8}) {
    TrainingCase options = fsdp_case(world_size);
    options.strategy = Strategy::ddp;
    CAPTURE(world_size);
    CHECK(difference(train(options), expected) == "");
  }
}

TEST_CASE("The options that trade memory for time change no bit") {
  TrainingCase base;
  base.clip = 0.5;
  const TrainingResult expected = single(base);
  const int world_size = GENERATE(2, 4, 8);
  TrainingCase options = fsdp_case(world_size);
  options.clip = base.clip;
  CAPTURE(world_size);
  SECTION("parameters kept until backward") { options.reshard = ReshardAfterForward::never(); }
  SECTION("parameters kept within pairs of ranks") {
    if (world_size == 2) return;
    options.reshard = ReshardAfterForward::within(2);
  }
  SECTION("no prefetch") { options.prefetch_depth = 0; }
  SECTION("prefetch of two") { options.prefetch_depth = 2; }
  SECTION("two threads a rank") { options.threads = 2; }
  SECTION("meta start") { options.meta_start = true; }
  SECTION("meta start and no_sync") {
    options.meta_start = true;
    options.no_sync = true;
  }
  CHECK(difference(train(options), expected) == "");
}

TEST_CASE("Tied embeddings belong to the root and change no bit") {
  TrainingCase base;
  base.model.tie_embeddings = true;
  const TrainingResult expected = single(base);
  const int world_size = GENERATE(1, 2, 4);
  TrainingCase options = fsdp_case(world_size);
  options.model = base.model;
  options.meta_start = GENERATE(false, true);
  CHECK(difference(train(options), expected) == "");
}

TEST_CASE("At three ranks training is right, though not to the last bit") {
  TrainingCase base;
  base.micro_batches = 6;
  const TrainingResult expected = single(base);
  TrainingCase options = fsdp_case(3);
  options.micro_batches = 6;
  const TrainingResult seen = train(options);
  CHECK(difference(seen, train(options)) == "");  // and deterministic
  for (const auto& [name, values] : expected.state) {
    const auto& other = seen.state.at(name);
    double square_difference = 0;
    double square = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      square_difference += (values[i] - other[i]) * (values[i] - other[i]);
      square += values[i] * values[i];
    }
    CAPTURE(name);
    CHECK(square_difference <= 1e-6 * square);
  }
}
