// The bytes of models whose blocks are checkpointed, really run, against the formula.

#include "memory/real_training.h"
#include "parallel/ddp.h"
#include "support/catch.h"

#include <algorithm>

namespace fsdp::testing::checkpointed_memory {
namespace {

using namespace paper;

constexpr int kOneIn = FSDP_SANITIZED ? 5 : 1;  // a part of the cases is enough there

MemoryCase checkpointed_case(Strategy placement, int world_size, Checkpointing checkpointing) {
  MemoryCase test_case = odd_case(placement, world_size);
  test_case.options.recipe.checkpointing = checkpointing;
  return test_case;
}

/// Some products, and results that nobody's backward needs.
MemoryCase keeping_case(Strategy placement, int world_size, std::vector<std::string> operations) {
  MemoryCase test_case = checkpointed_case(placement, world_size, Checkpointing::operations);
  if (!operations.empty()) test_case.options.recipe.kept_operations = std::move(operations);
  return test_case;
}

/// As one process, as DDP, and as FSDP in both nestings, on every number of ranks; and with results
/// that are kept.
template <class Check>
void everywhere(Check&& check) {
  check(checkpointed_case(Strategy::single, 1, Checkpointing::inside));
  check(keeping_case(Strategy::single, 1, {}));
  check(keeping_case(Strategy::single, 1, {"k_proj", "o_proj", "up_proj", "down_proj"}));
  for (const int world_size : {1, 2, 3, 4}) {
    check(keeping_case(Strategy::fsdp, world_size, {}));
    check(keeping_case(Strategy::ddp, world_size, {"self_attn"}));
    check(checkpointed_case(Strategy::ddp, world_size, Checkpointing::inside));
    check(checkpointed_case(Strategy::fsdp, world_size, Checkpointing::inside));
    check(checkpointed_case(Strategy::fsdp, world_size, Checkpointing::around));
  }
}

const std::vector<optim::MixedPrecision> kPolicies = {
    {},
    {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32},
    {.param_dtype = DType::float16, .reduce_dtype = DType::float16}};

}  // namespace

TEST_CASE("Checkpointed blocks hold what the formula says: depth, reshard, no_sync, formats") {
  int number = 0;
  for (const optim::MixedPrecision& policy : kPolicies) {
    for (const int depth : {0, 1, 2}) {
      for (const bool no_sync : {false, true}) {
        everywhere([&](MemoryCase test_case) {
          if (number++ % kOneIn != 0) return;
          MemoryOptions& options = test_case.options;
          options.recipe.precision = policy;
          options.recipe.sharding.prefetch_depth = depth;
          if (options.recipe.strategy != Strategy::single)
            options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
          test_case.model.tie_word_embeddings = number % 3 == 0;
          for (const auto reshard : {ReshardAfterForward::always(), ReshardAfterForward::never(),
                                     ReshardAfterForward::within(2)}) {
            options.recipe.sharding.reshard_after_forward = reshard;
            const bool is_default = reshard == ReshardAfterForward::always();
            if (!is_default && options.recipe.strategy != Strategy::fsdp) continue;
            if (reshard.is_within() && options.recipe.ranks != 4) continue;
            CHECK(difference(test_case) == "");
          }
        });
      }
    }
  }
}

TEST_CASE("Checkpointed blocks of LoRA and of partly frozen models hold what the formula says") {
  const std::vector<std::vector<std::string>> targets = {
      {"q_proj", "v_proj"}, {"down_proj"}, {"model.layers.1.mlp.gate_proj"}};
  int number = 0;
  for (const std::vector<std::string>& of_lora : targets) {
    everywhere([&](MemoryCase test_case) {
      if (number++ % kOneIn != 0) return;
      test_case.options.recipe.lora.rank = 3;
      test_case.options.recipe.lora.targets = of_lora;
      test_case.options.recipe.precision = kPolicies[1];
      CHECK(difference(test_case) == "");
    });
  }
  const std::vector<std::function<bool(const std::string&)>> parts = {
      [](const auto& path) { return path.find("embed") == path.npos; },
      [](const auto& path) { return path.find("norm") != path.npos; },
      [](const auto& path) { return path.find("layers.2") != path.npos; },
      [](const auto& path) { return path.find("layers.1.mlp") != path.npos; },
      [](const auto& path) { return path.find("lm_head") != path.npos; }};
  for (const auto& part : parts) {
    everywhere([&](MemoryCase test_case) {
      if (number++ % kOneIn != 0) return;
      train_only(test_case, part);
      CHECK(difference(test_case) == "");
    });
  }
}

TEST_CASE("Every second block, and every third, checkpointed hold what the formula says") {
  int number = 0;
  for (const int every : {2, 3}) {
    everywhere([&](MemoryCase test_case) {
      if (number++ % kOneIn != 0) return;
      test_case.model.num_hidden_layers = 5;
      test_case.options.recipe.checkpoint_every = every;
      CHECK(difference(test_case) == "");
    });
  }
}

TEST_CASE("Checkpointed blocks in a mesh, and with ignored parameters, hold what it says") {
  for (const Checkpointing checkpointing : {Checkpointing::inside, Checkpointing::around}) {
    for (const int replicas : {2, 4}) {
      for (const int depth : {0, 1}) {
        MemoryCase test_case = checkpointed_case(Strategy::fsdp, 4, checkpointing);
        test_case.options.recipe.replicas = replicas;
        test_case.options.recipe.sharding.prefetch_depth = depth;
        CHECK(difference(test_case) == "");
      }
    }
    MemoryCase test_case = checkpointed_case(Strategy::fsdp, 3, checkpointing);
    test_case.options.recipe.sharding.ignored = {"model.layers.1.self_attn", "model.norm"};
    test_case.options.recipe.bucket_bytes = parallel::DdpGradients::kBucketBytes;
    CHECK(difference(test_case) == "");
  }
}

TEST_CASE("Checkpointed blocks whose shards are offloaded hold what the formula says") {
  for (const Checkpointing checkpointing : {Checkpointing::inside, Checkpointing::around}) {
    for (const bool grads : {false, true}) {
      for (const int world_size : {1, 2, 3, 4}) {
        MemoryCase test_case = checkpointed_case(Strategy::fsdp, world_size, checkpointing);
        test_case.options.recipe.sharding.offload = {.params = true, .grads = grads};
        test_case.options.recipe.sharding.prefetch_depth = world_size % 3;
        test_case.options.recipe.precision = kPolicies[grads ? 1 : 0];
        CHECK(difference(test_case) == "");
      }
    }
  }
}

// By hand, without the formula. So long a batch that activations are most of what is held.
TEST_CASE("Between forward and backward a checkpointed block keeps its input alone") {
  constexpr int kBlocks = 12, kBatch = 16;
  const auto measured = [](Checkpointing checkpointing) {
    MemoryCase test_case = checkpointed_case(Strategy::single, 1, checkpointing);
    test_case.model.num_hidden_layers = kBlocks;
    test_case.options.batch = kBatch;
    test_case.steps = 1;
    return measure(test_case)[0].steps[0].micro_steps[0];
  };
  const auto after_forward = [](const MicroStepMemory& memory) {
    const auto found = std::ranges::find_if(memory.snapshots, [](const MemorySnapshot& each) {
      return each.module == "root" && each.state == nn::CallState::after_post_forward;
    });
    return found->bytes[MemoryKind::activation];
  };
  constexpr std::int64_t kRows = kBatch * 7, kInput = 4 * kRows * 20;
  constexpr std::int64_t kBlock =
      6 * kInput + 2 * 4 * kRows * 10 + 3 * 4 * kRows * 51 + 4 * kRows * 10 + 2 * 4 * kRows;  // A_k
  const MicroStepMemory plain = measured(Checkpointing::none);
  const MicroStepMemory checkpointed = measured(Checkpointing::inside);
  CHECK(after_forward(plain) - after_forward(checkpointed) == kBlocks * (kBlock - kInput));
  // In backward one block has all of its activations, and there are all gradients.
  CHECK(plain.backward_peak.total() - checkpointed.backward_peak.total() >
        (kBlocks - 3) * (kBlock - kInput));
}

TEST_CASE("llama2-7b on the fake device: the activations of one block instead of 32") {
  MemoryCase test_case;
  test_case.model = llama2_7b();
  test_case.is_fake = true;
  MemoryOptions& options = test_case.options;
  options.recipe.ranks = 8;
  options.recipe.precision = kPolicies[1];
  std::vector<std::int64_t> peaks;
  for (const Checkpointing checkpointing :
       {Checkpointing::none, Checkpointing::inside, Checkpointing::around}) {
    options.recipe.checkpointing = checkpointing;
    CHECK(difference(test_case) == "");
    peaks.push_back(MemoryFormula(test_case.model, options).step(1).peak().total());
  }
  // Around a unit, the full gradient does not exist yet when the second forward has its result.
  constexpr std::int64_t kResult = 2 * 4096 * 4096;
  CHECK(peaks[1] - peaks[2] == kResult);
  CAPTURE(peaks[0], peaks[1]);
  CHECK(peaks[0] - peaks[1] > std::int64_t{10} << 30);
}

TEST_CASE("Checkpointing around units needs units") {
  for (const Strategy placement : {Strategy::single, Strategy::ddp}) {
    const MemoryCase test_case = checkpointed_case(placement, 1, Checkpointing::around);
    CHECK_THROWS_WITH(MemoryFormula(test_case.model, test_case.options), contains("has no units"));
  }
}

}  // namespace fsdp::testing::checkpointed_memory
