// ZeRO-Offload: what ZeRO-1 and ZeRO-2 hold on the device and on its host, really run, against the
// formula.

#include "memory/real_training.h"
#include "support/catch.h"

#include <algorithm>

namespace fsdp::testing::zero_offload_test {
namespace {

using namespace fsdp::paper;
using optim::MixedPrecision;
using optim::Partition;

constexpr int kEvery = FSDP_SANITIZED ? 5 : 1;  // a part of the cases is enough there
constexpr Partition kPartitions[] = {Partition::greedy, Partition::flat, Partition::round_robin};
constexpr optim::Offload kOptimizer{.optimizer = true};
constexpr optim::Offload kAll{.grads = true, .optimizer = true};

/// ZeRO-1 has no gradients of its own to move.
struct Way {
  Strategy strategy;
  optim::Offload offload;
};
constexpr Way kWays[] = {
    {Strategy::zero1, kOptimizer}, {Strategy::zero2, kOptimizer}, {Strategy::zero2, kAll}};

MemoryCase offload_case(const Way& way, Partition partition, int world_size) {
  MemoryCase test_case = odd_case(way.strategy, world_size);
  test_case.options.recipe.sharding.offload = way.offload;
  test_case.options.recipe.zero = {
      .partition = partition, .reduce_buffer_bytes = 3000, .broadcast_buffer_bytes = 5000};
  return test_case;
}

}  // namespace

TEST_CASE("With its optimizer offloaded, ZeRO holds what the formula says on device and host") {
  int count = 0;
  for (const Way& way : kWays) {
    for (const Partition partition : kPartitions) {
      for (const int world_size : {1, 2, 3, 4}) {
        for (const bool no_sync : {false, true}) {
          if (count++ % kEvery != 0) continue;
          MemoryCase test_case = offload_case(way, partition, world_size);
          test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
          test_case.model.tie_word_embeddings = world_size == 2;
          test_case.is_fake = count % 4 < 2;
          if (test_case.is_fake) test_case.options.rank = world_size - 1;
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("ZeRO-Offload holds what the formula says in every format") {
  int count = 0;
  for (const MixedPrecision& policy :
       {MixedPrecision{}, MixedPrecision{DType::bfloat16, DType::float32},
        MixedPrecision{DType::float16, {}}, MixedPrecision{{}, DType::bfloat16}}) {
    for (const Way& way : kWays) {
      for (const std::size_t nbytes : {std::size_t{0}, std::size_t{900}, std::size_t{1} << 30}) {
        for (const bool halves : {false, true}) {
          if (count++ % kEvery != 0) continue;
          MemoryCase test_case = offload_case(way, kPartitions[count % 3], 2 + count % 2);
          test_case.options.recipe.precision = policy;
          test_case.options.recipe.micro_steps = 1 + count % 4;
          test_case.options.recipe.zero.reduce_buffer_bytes = nbytes;
          test_case.options.recipe.zero.broadcast_buffer_bytes = nbytes;
          test_case.options.recipe.zero.broadcast_fp16 = halves;
          set_states(test_case, count % 3);
          CAPTURE(nbytes, halves);
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("ZeRO-Offload holds what the formula says, with other switches, frozen, and with LoRA") {
  for (const Way& way : kWays) {
    for (const int world_size : {1, 3}) {
      MemoryCase test_case = offload_case(way, Partition::flat, world_size);
      test_case.options.recipe.precision.param_dtype = DType::bfloat16;
      MemoryCase switched = test_case;
      switched.options.recipe.zero.contiguous_gradients = false;
      switched.options.recipe.zero.reduce_scatter = false;
      switched.options.recipe.zero.reductions.overlap = false;
      CHECK(difference(switched) == "");
      MemoryCase compressed = test_case;
      compressed.options.recipe.zero.reductions.compression = DType::float16;
      compressed.options.recipe.precision.reduce_dtype = DType::float32;
      CHECK(difference(compressed) == "");
      MemoryCase frozen = test_case;
      train_only(frozen, [](const std::string& path) {
        return path.find("layers.1") != std::string::npos || path.starts_with("lm_head");
      });
      CHECK(difference(frozen) == "");
      frozen.options.recipe.precision = {};
      CHECK(difference(frozen) == "");
      MemoryCase lora = test_case;
      lora.options.recipe.lora.rank = 2;
      lora.options.recipe.lora.targets = {"q_proj", "up_proj"};
      CHECK(difference(lora) == "");
    }
  }
}

// In 16 bits, 2 bytes of each parameter stay; 4 of the master, 4 of the gradient and 8 of AdamW's
// state leave: all of 16·N/W.
TEST_CASE("What a rank of ZeRO-2 owns leaves the device, and the host has as many bytes more") {
  for (const int world_size : {1, 2, 3, 4}) {
    MemoryCase offloaded = offload_case({Strategy::zero2, kAll}, Partition::flat, world_size);
    offloaded.options.recipe.precision = {DType::bfloat16, DType::float32};
    offloaded.options.recipe.micro_steps = 1;
    offloaded.options.recipe.zero.broadcast_buffer_bytes = 0;
    MemoryCase plain = offloaded;
    plain.options.recipe.sharding.offload = {};
    const StepMemory before = MemoryFormula(plain.model, plain.options).step(1);
    const StepMemory device = MemoryFormula(offloaded.model, offloaded.options).step(1);
    const StepMemory host =
        MemoryFormula(offloaded.model, offloaded.options, MemorySpace::host).step(1);
    const std::int64_t N = plain.model.parameter_count();
    const std::int64_t load = before.at_rest[MemoryKind::optimizer] / 8;
    CHECK(load == (N + world_size - 1) / world_size);
    CHECK(before.at_rest.total() - device.at_rest.total() == 12 * load);
    CHECK(host.at_rest.total() == 12 * load);
    CHECK(device.at_rest[MemoryKind::unsharded_param] == 2 * N);
    CHECK(device.step_peak[MemoryKind::unsharded_grad] == 0);
    CHECK(host.step_peak[MemoryKind::unsharded_grad] == 4 * load);
    CHECK(host.step_peak[MemoryKind::optimizer] == 8 * load);
  }
}

TEST_CASE("ZeRO-Offload: the peaks of all ranks in one walk are those of each") {
  for (const Way& way : kWays) {
    for (const Partition partition : kPartitions) {
      MemoryCase test_case = offload_case(way, partition, 4);
      test_case.options.recipe.micro_steps = 9;
      test_case.options.recipe.precision.param_dtype = DType::bfloat16;
      for (const MemorySpace space : {MemorySpace::device, MemorySpace::host}) {
        const std::vector<std::int64_t> all =
            bound_bytes_by_rank(test_case.model, test_case.options, 2, space);
        for (int rank = 0; rank < 4; ++rank) {
          test_case.options.rank = rank;
          const std::int64_t peak =
              MemoryFormula(test_case.model, test_case.options, space).peak(2).total();
          CHECK(all.at(static_cast<std::size_t>(rank)) == peak);
          CHECK(peak_of_training(test_case.model, test_case.options, space).total() == peak);
        }
      }
    }
  }
}

}  // namespace fsdp::testing::zero_offload_test
