// Offload to the host: what is on the device and what on its host, really run, against the formula.

#include "memory/real_training.h"
#include "support/catch.h"

namespace fsdp::testing::offload_test {
namespace {

using namespace fsdp::paper;

constexpr int kEvery = FSDP_SANITIZED ? 5 : 1;  // a part of the cases is enough there
constexpr optim::Offload kParams{.params = true};
constexpr optim::Offload kAll{.params = true, .grads = true};

MemoryCase offload_case(int world_size, optim::Offload offload) {
  MemoryCase test_case = odd_case(Strategy::fsdp, world_size);
  test_case.options.recipe.sharding.offload = offload;
  return test_case;
}

}  // namespace

TEST_CASE("With offload, device and host hold what the formula says") {
  int count = 0;
  for (const int world_size : {1, 2, 3, 4}) {
    for (const int depth : {0, 1, 2}) {
      for (const bool no_sync : {false, true}) {
        for (const optim::Offload offload : {kParams, kAll}) {
          if (count++ % kEvery != 0) continue;
          MemoryCase test_case = offload_case(world_size, offload);
          test_case.options.recipe.sharding.prefetch_depth = depth;
          test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
          test_case.is_fake = count % 4 < 2;
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("The same under mixed precision, tied, and with two flat parameters a unit") {
  const std::vector<optim::MixedPrecision> policies = {
      {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32},
      {.param_dtype = DType::bfloat16, .reduce_dtype = {}},
      {.param_dtype = {}, .reduce_dtype = DType::float16}};
  int count = 0;
  for (const optim::MixedPrecision& policy : policies) {
    for (const bool is_tied : {false, true}) {
      for (const optim::Offload offload : {kParams, kAll}) {
        if (count++ % kEvery != 0) continue;
        MemoryCase test_case = offload_case(is_tied ? 3 : 4, offload);
        test_case.model.tie_word_embeddings = is_tied;
        test_case.options.recipe.precision = policy;
        if (!is_tied) {
          test_case.options.recipe.sharding.reshard_after_forward = ReshardAfterForward::within(2);
        }
        CHECK(difference(test_case) == "");
        test_case.options.recipe.optimizer.decay_norms = false;
        CHECK(difference(test_case) == "");
      }
    }
  }
}

TEST_CASE("The same in a mesh of replicas, with ignored and frozen parameters, and with LoRA") {
  for (const optim::Offload offload : {kParams, kAll}) {
    MemoryCase mesh = offload_case(4, offload);
    // In a student kit, the mesh is task 8's.
    mesh.options.recipe.replicas = FSDP_HAS_TASK8 == 0 ? 1 : 2;
    CHECK(difference(mesh) == "");
    mesh.options.recipe.micro_steps_per_reduction = 3;
    mesh.options.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
    CHECK(difference(mesh) == "");

    MemoryCase ignored = offload_case(3, offload);
    ignored.options.recipe.sharding.ignored = {"model.norm", "model.layers.1.mlp"};
    ignored.options.recipe.bucket_bytes = optim::kBucketBytes;
    CHECK(difference(ignored) == "");

    MemoryCase frozen = offload_case(2, offload);
    train_only(frozen, [](const std::string& path) {
      return path.find("layers.0") == std::string::npos &&
             path.find("up_proj") == std::string::npos;
    });
    CHECK(difference(frozen) == "");

    MemoryCase lora = offload_case(2, offload);
    lora.options.recipe.lora.rank = 2;
    lora.options.recipe.lora.targets = {"q_proj", "up_proj"};
    lora.options.recipe.precision = {.param_dtype = DType::bfloat16, .reduce_dtype = {}};
    CHECK(difference(lora) == "");
  }
}

// 4 bytes of a parameter, 4 of its gradient, 8 of AdamW's state: all of 16·N/W.
TEST_CASE("All shards leave the device, and the host has as many bytes more") {
  const int world_size = GENERATE(1, 2, 3, 4);
  MemoryCase plain = offload_case(world_size, {});
  plain.options.recipe.micro_steps = 1;
  MemoryCase offloaded = plain;
  offloaded.options.recipe.sharding.offload = kAll;
  const StepMemory before = MemoryFormula(plain.model, plain.options).step(1);
  const StepMemory device = MemoryFormula(offloaded.model, offloaded.options).step(1);
  const StepMemory host =
      MemoryFormula(offloaded.model, offloaded.options, MemorySpace::host).step(1);
  const std::int64_t shards = before.at_rest[MemoryKind::sharded_param];

  CHECK(before.step_peak[MemoryKind::sharded_grad] == shards);
  CHECK(before.step_peak[MemoryKind::optimizer] == 2 * shards);
  CHECK(host.step_peak.total() == 4 * shards);
  // The clip's counters have come and gone when the step's peak is reached.
  for (const MemoryKind kind :
       {MemoryKind::sharded_param, MemoryKind::sharded_grad, MemoryKind::optimizer}) {
    CHECK(device.step_peak[kind] == 0);
    CHECK(host.step_peak[kind] == before.step_peak[kind]);
  }
  CHECK(before.at_rest.total() - device.at_rest.total() == 3 * shards);
  CHECK(host.at_rest.total() == 3 * shards);
}

}  // namespace fsdp::testing::offload_test
