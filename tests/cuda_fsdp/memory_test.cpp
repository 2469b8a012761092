// The bytes of a CUDA device. On the device `fake` the same code runs, its sizes rounded up alike;
// and without rounding, `fake` holds what the formula says (tests/memory).
#include "cuda_stand_in/plans.h"
#include "memory/real_training.h"

#include <cstdint>
#include <vector>

namespace fsdp::testing::cuda_memory_test {
namespace {

using namespace fsdp::paper;

/// Scratch is made once and stays; it differs between devices, and is counted as TEMP.
void drop_scratch(MeasuredMemory& memory, std::int64_t scratch) {
  const auto drop = [scratch](Breakdown& bytes) { bytes[MemoryKind::temp] -= scratch; };
  drop(memory.before);
  for (StepMemory& step : memory.steps) {
    for (MicroStepMemory& micro_step : step.micro_steps) {
      for (MemorySnapshot& snapshot : micro_step.snapshots) drop(snapshot.bytes);
      drop(micro_step.forward_peak);
      drop(micro_step.backward_peak);
    }
    drop(step.step_peak);
    drop(step.at_rest);
  }
}

/// On every rank, of the case's space: what a CUDA device holds and `fake` does not.
std::string difference_from_fake(MemoryCase test_case) {
  test_case.model.num_hidden_layers = 2;
  test_case.model.num_attention_heads = 2;
  test_case.model.num_key_value_heads = 1;
  test_case.options.batch = 1;
  test_case.options.recipe.micro_steps = 2;
  if (test_case.options.recipe.micro_steps_per_reduction > 1) {
    test_case.options.recipe.micro_steps_per_reduction = 2;
  }
  test_case.device = kCuda;
  Session session(requested_or({Mode::lazy, 0}));
  const std::vector<MeasuredMemory> measured = measure(test_case);
  session.finish();
  test_case.is_fake = true;
  test_case.granularity = 512;
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    MeasuredMemory on_device = measured[rank];
    drop_scratch(on_device, on_device.before[MemoryKind::temp]);
    test_case.options.rank = static_cast<int>(rank);
    MeasuredMemory expected = measure(test_case).front();
    drop_scratch(expected, expected.before[MemoryKind::temp]);
    const std::string what = difference(on_device, expected);
    if (!what.empty()) return describe(test_case) + ": rank " + std::to_string(rank) + ", " + what;
  }
  return {};
}

}  // namespace

TEST_CASE("a CUDA device holds the bytes of the fake device, rounded up to 512", "[fsdp]") {
  for (const int world_size : {1, 2, 3}) {
    MemoryCase test_case = odd_case(Strategy::fsdp, world_size);
    test_case.options.recipe.sharding.prefetch_depth = world_size - 1;
    test_case.options.recipe.micro_steps_per_reduction = world_size == 2 ? 2 : 1;
    if (world_size == 2)
      test_case.options.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
    if (world_size == 3) test_case.options.recipe.precision.param_dtype = DType::bfloat16;
    CHECK(difference_from_fake(test_case) == "");
  }
  if (FSDP_SANITIZED != 0) return;  // the other strategies allocate by the same code
  CHECK(difference_from_fake(odd_case(Strategy::single, 1)) == "");
  CHECK(difference_from_fake(odd_case(Strategy::ddp, 2)) == "");
  CHECK(difference_from_fake(odd_case(Strategy::zero2, 2)) == "");
  MemoryCase in_16_bits = odd_case(Strategy::zero1, 2);
  in_16_bits.options.recipe.precision.param_dtype = DType::bfloat16;
  in_16_bits.options.recipe.zero.partition = optim::Partition::flat;
  CHECK(difference_from_fake(in_16_bits) == "");
}

TEST_CASE("with offload, a CUDA device holds the bytes of the fake device", "[fsdp][long]") {
  for (const bool with_gradients : {false, true}) {
    MemoryCase test_case = odd_case(Strategy::fsdp, 2);
    test_case.options.recipe.sharding.offload = {.params = true, .grads = with_gradients};
    CHECK(difference_from_fake(test_case) == "");
    MemoryCase zero = odd_case(Strategy::zero2, 2);
    zero.options.recipe.sharding.offload = {.grads = with_gradients, .optimizer = true};
    zero.options.recipe.precision.param_dtype = DType::bfloat16;
    CHECK(difference_from_fake(zero) == "");
  }
}

}  // namespace fsdp::testing::cuda_memory_test
