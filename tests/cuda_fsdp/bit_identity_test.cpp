// The promise of the project on a CUDA device that all ranks share: a single process and FSDP at
// any power of two of ranks agree in every bit. The tasks' code is what trains on the CPU too.
#include "cuda_fsdp/trainings.h"

#include <cmath>
#include <string>
#include <vector>

namespace fsdp::testing {
namespace {

constexpr std::size_t kSegment = std::size_t{64} << 10;  // blocks are cut from it, and used again
constexpr optim::MixedPrecision kBf16 = {.param_dtype = DType::bfloat16,
                                         .reduce_dtype = DType::float32};

CudaTraining single(const TrainingCase& options) {
  return train_on_device(options.spread(Strategy::single, 1), {Mode::eager, 17});
}

/// A way to train that must change no bit.
struct Way {
  int world_size = 4;
  ReshardAfterForward reshard = ReshardAfterForward::always();
  int prefetch_depth = 1;
  bool no_sync = false;
  int replicas = 1;
  Checkpointing checkpointed = Checkpointing::none;
  std::vector<std::string> ignored = {};
};

TrainingCase with(const TrainingCase& base, const Way& way) {
  TrainingCase options = base.spread(Strategy::fsdp, way.world_size, way.no_sync);
  options.recipe.sharding.reshard_after_forward = way.reshard;
  options.recipe.sharding.prefetch_depth = way.prefetch_depth;
  options.recipe.replicas = way.replicas;
  options.recipe.checkpointing = way.checkpointed;
  options.recipe.sharding.ignored = way.ignored;
  return options;
}

}  // namespace

TEST_CASE("on a CUDA device, FSDP equals a single process in every bit, without a wait", "[fsdp]") {
  const CudaTraining expected = single(cuda_case());
  CHECK(expected.waits == 0);
  for (const Plan& plan : two_plans()) {
    for (const int world_size : {1, 2, 4}) {
      CAPTURE(text_of(plan), world_size);
      TrainingCase options = cuda_case(Strategy::fsdp, world_size);
      if (plan.mode == Mode::random) options.segment_nbytes = kSegment;
      const CudaTraining training = train_on_device(options, plan);
      CHECK(difference(training.result, expected.result) == "");
      CHECK(training.waits == 0);
    }
  }
}

TEST_CASE("on a CUDA device, losses and parameters are near those of the CPU", "[fsdp]") {
  TrainingCase options = cuda_case();
  options.recipe.clip = 0.5;
  const TrainingResult on_device = single(options).result;
  options.device = kCpu;
  const TrainingResult on_cpu = train(options);
  REQUIRE(on_device.losses.size() == on_cpu.losses.size());
  for (std::size_t step = 0; step < on_cpu.losses.size(); ++step) {
    CHECK(std::abs(on_device.losses[step] - on_cpu.losses[step]) <= 1e-5F);
    CHECK(std::abs(on_device.norms[step] - on_cpu.norms[step]) <= 1e-5);
  }
  for (const auto& [name, values] : on_cpu.state) {
    double difference = 0, length = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(on_device.state.at(name).at(i) - values[i], 2);
      length += std::pow(values[i], 2);
    }
    INFO(name);
    CHECK(std::sqrt(difference) <= 1e-3 * std::sqrt(length));
  }
}

TEST_CASE("on a CUDA device, the options that trade memory for time change no bit",
          "[fsdp][stand-in][long]") {
  TrainingCase base = cuda_case();
  base.recipe.clip = 0.1;
  TrainingCase in_bf16 = base;
  in_bf16.recipe.precision = kBf16;
  const TrainingResult expected = single(base).result, expected_in_bf16 = single(in_bf16).result;
  const Way ways[] = {
      {.world_size = 2, .reshard = ReshardAfterForward::never(), .prefetch_depth = 0},
      {.reshard = ReshardAfterForward::never(), .no_sync = true},
      {.reshard = ReshardAfterForward::within(2)},
      {.world_size = 2, .prefetch_depth = 0, .no_sync = true},
      {.replicas = 2, .ignored = {"model.norm", "model.embed_tokens"}},
      {.world_size = 2, .checkpointed = Checkpointing::around},
      {.world_size = 1, .prefetch_depth = 2, .no_sync = true},
  };
  std::size_t number = 0;
  for (const Way& way : ways) {
    if (FSDP_SANITIZED && number == 4) break;  // the other ways are seen without a card
    CAPTURE(number);
    const bool is_bf16 = number % 2 == 1;
    const TrainingCase options = with(is_bf16 ? in_bf16 : base, way);
    const CudaTraining training = train_on_device(options, plan_in_turn(number++ / 2));
    CHECK(difference(training.result, is_bf16 ? expected_in_bf16 : expected) == "");
    // The norm is read once a step on every rank: a wait for the stream, and one for the copy.
    CHECK(training.waits == std::int64_t{2} * options.steps * options.recipe.ranks);
  }
}

TEST_CASE("on a CUDA device, DDP and ZeRO equal a single process in every bit", "[fsdp]") {
  TrainingCase base = cuda_case();
  base.recipe.micro_steps = 2;
  base.recipe.clip = 0.1;
  base.recipe.precision = kBf16;
  const TrainingResult expected = single(base).result;
  std::size_t number = 0;
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
    TrainingCase options = base.spread(strategy, 2);
    if (strategy == Strategy::zero1) options.recipe.zero.partition = optim::Partition::flat;
    CAPTURE(number);
    CHECK(difference(train_on_device(options, plan_in_turn(number++)).result, expected) == "");
  }
}

TEST_CASE("with shards in the memory of the host, a CUDA device computes the same bits", "[fsdp]") {
  const bool is_bf16 = GENERATE(false, true);
  TrainingCase base = cuda_case();
  base.recipe.clip = 0.1;
  if (is_bf16) base.recipe.precision = kBf16;
  const TrainingResult expected = single(base).result;
  for (const bool with_gradients : {false, true}) {
    if (FSDP_SANITIZED && is_bf16 != with_gradients) continue;
    CAPTURE(is_bf16, with_gradients);
    TrainingCase options = with(base, {.world_size = 2, .no_sync = is_bf16});
    options.recipe.sharding.offload = {.params = true, .grads = with_gradients};
    CHECK(difference(train_on_device(options, plan_in_turn(is_bf16 ? 1 : 0)).result, expected) ==
          "");
  }
}

TEST_CASE("with its optimizer in the memory of the host, ZeRO computes the same bits",
          "[fsdp][long]") {
  TrainingCase base = cuda_case();
  base.recipe.clip = 0.1;
  const bool is_bf16 = GENERATE(false, true);
  if (is_bf16) base.recipe.precision = kBf16;
  const TrainingResult expected = single(base).result;
  std::size_t number = 0;
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    for (const bool with_gradients : {false, true}) {
      if (with_gradients && strategy == Strategy::zero1) continue;
      if (FSDP_SANITIZED && is_bf16 != with_gradients) continue;
      TrainingCase options = base.spread(strategy, 2);
      options.recipe.zero = {.partition = optim::Partition::flat,
                             .reduce_buffer_bytes = with_gradients ? std::size_t{2000} : 0,
                             .broadcast_buffer_bytes = 3000};
      options.recipe.sharding.offload = {.grads = with_gradients, .optimizer = true};
      CAPTURE(number);
      CHECK(difference(train_on_device(options, plan_in_turn(number++)).result, expected) == "");
    }
  }
}

}  // namespace fsdp::testing
