// The bytes of models with frozen parameters, and of LoRA, really run, against the formula.

#include "memory/real_training.h"
#include "strategies/trained_model.h"
#include "support/catch.h"

#include <fmt/format.h>

using namespace fsdp;
using namespace fsdp::paper;
using namespace fsdp::testing;

namespace {

constexpr int kOneIn = FSDP_SANITIZED ? 5 : 1;  // a part of the cases is enough there

const std::vector<std::vector<std::string>> kTargets = {
    {"q_proj", "v_proj"},
    {"k_proj"},
    {"o_proj", "gate_proj"},
    {"down_proj"},
    {"up_proj"},
    {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
    {"model.layers.1.mlp.gate_proj"},  // below it, nothing is recorded
};

MemoryCase lora_case(Strategy placement, int world_size,
                     const std::vector<std::string>& targets = kTargets[0]) {
  MemoryCase test_case = odd_case(placement, world_size);
  test_case.options.recipe.lora.rank = 3;
  test_case.options.recipe.lora.targets = targets;
  return test_case;
}

/// Each as one process, as DDP and as FSDP, on every number of ranks.
template <class Check>
void in_every_placement(Check&& check) {
  check(Strategy::single, 1);
  for (const int world_size : {1, 2, 3, 4}) {
    check(Strategy::ddp, world_size);
    check(Strategy::fsdp, world_size);
  }
}

}  // namespace

TEST_CASE("LoRA holds what the formula says, whatever it is attached to") {
  int number = 0;
  for (const std::vector<std::string>& targets : kTargets) {
    in_every_placement([&](Strategy placement, int world_size) {
      if (number++ % kOneIn != 0) return;
      MemoryCase test_case = lora_case(placement, world_size, targets);
      test_case.model.tie_word_embeddings = number % 2 == 0;
      CAPTURE(targets, world_size, placement == Strategy::ddp);
      CHECK(difference(test_case) == "");
    });
  }
}

TEST_CASE("LoRA holds what the formula says: prefetch, reshard, no_sync, mixed precision") {
  int number = 0;
  for (const optim::MixedPrecision& policy :
       {optim::MixedPrecision{},
        {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32},
        {.param_dtype = DType::float16, .reduce_dtype = DType::float16}}) {
    for (const int depth : {0, 1, 2}) {
      for (const bool no_sync : {false, true}) {
        in_every_placement([&](Strategy placement, int world_size) {
          if (number++ % kOneIn != 0) return;
          MemoryCase test_case =
              lora_case(placement, world_size, kTargets[number % 2 == 0 ? 0 : 2]);
          test_case.options.recipe.precision = policy;
          test_case.options.recipe.sharding.prefetch_depth = depth;
          test_case.options.recipe.sharding.reshard_after_forward =
              depth == 2 ? ReshardAfterForward::never() : ReshardAfterForward::always();
          if (placement == Strategy::fsdp && world_size == 4 && depth == 1) {
            test_case.options.recipe.sharding.reshard_after_forward =
                ReshardAfterForward::within(2);
          }
          if (placement != Strategy::single)
            test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
          CAPTURE(world_size, placement == Strategy::ddp, number);
          CHECK(difference(test_case) == "");
        });
      }
    }
  }
}

TEST_CASE("Models of which a part is frozen hold what the formula says") {
  const std::vector<std::pair<std::string, std::function<bool(const std::string&)>>> parts = {
      {"the embedding is frozen", [](const auto& path) { return path.find("embed") == path.npos; }},
      {"the norms", [](const auto& path) { return path.find("norm") == path.npos; }},
      {"all but the norms", [](const auto& path) { return path.find("norm") != path.npos; }},
      {"all but the last layer",
       [](const auto& path) { return path.find("layers.2") != path.npos; }},
      {"one layer", [](const auto& path) { return path.find("layers.1") == path.npos; }},
      {"all but the head", [](const auto& path) { return path.find("lm_head") != path.npos; }},
  };
  int number = 0;
  for (const auto& part : parts) {
    in_every_placement([&](Strategy placement, int world_size) {
      if (number++ % kOneIn != 0) return;
      MemoryCase test_case = odd_case(placement, world_size);
      train_only(test_case, part.second);
      CAPTURE(part.first, world_size, placement == Strategy::ddp);
      CHECK(difference(test_case) == "");
    });
  }
}

TEST_CASE("LoRA with ignored parameters and tied embeddings holds what the formula says") {
  for (const std::string path : {"model.embed_tokens", "model.layers.1.self_attn"}) {
    for (const bool is_tied : {false, true}) {
      MemoryCase test_case = lora_case(Strategy::fsdp, 3);
      test_case.model.tie_word_embeddings = is_tied;
      test_case.options.recipe.sharding.ignored = {path};
      test_case.options.recipe.bucket_bytes = optim::kBucketBytes;
      test_case.options.recipe.precision.param_dtype = DType::bfloat16;
      test_case.options.recipe.precision.reduce_dtype = DType::float32;
      CAPTURE(path, is_tied);
      CHECK(difference(test_case) == "");
    }
  }
}

TEST_CASE("The formula and a trained model refuse what a recipe refuses") {
  const auto check = [](const std::string& key, auto change) {
    optim::Recipe recipe{.strategy = Strategy::fsdp, .ranks = 2};
    change(recipe);
    for (const std::string& message :
         {message_of<optim::RecipeError>(
              [&] { MemoryFormula(nn::TransformerConfig::nano(), {.recipe = recipe}); }),
          message_of<optim::RecipeError>(
              [&] { strategies::TrainedModel([] { return nullptr; }, recipe, nullptr); })}) {
      CHECK_THAT(message, contains(key + ": is "));
    }
  };
  check("parallel.prefetch_depth", [](auto& recipe) { recipe.sharding.prefetch_depth = -1; });
  check("parallel.in_flight_limit", [](auto& recipe) { recipe.sharding.in_flight_limit = -1; });
  check("lora.rank", [](auto& recipe) {
    recipe.lora.rank = 2;
    recipe.trained = {"model.norm"};
  });
  check("parallel.offload_params", [](auto& recipe) {
    recipe.strategy = Strategy::zero2;
    recipe.sharding.offload.params = true;
  });
  check("parallel.offload_optimizer", [](auto& recipe) {
    recipe.strategy = Strategy::ddp;
    recipe.sharding.offload.optimizer = true;
  });
}

TEST_CASE("LoRA of llama2-7b on the fake device: 2N + 16 N_lora, and activations") {
  MemoryCase test_case;
  test_case.model = llama2_7b();
  test_case.is_fake = true;
  MemoryOptions& options = test_case.options;
  options.length = 512;
  options.recipe.clip = 1;
  options.recipe.lora.rank = 8;
  options.recipe.lora.targets = {"q_proj", "v_proj"};
  options.recipe.precision = {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32};
  constexpr std::int64_t kBase = 6'738'415'616, kAdapters = 4'194'304;
  for (const int world_size : {1, 8}) {
    options.recipe.ranks = world_size;
    options.recipe.strategy = world_size == 1 ? Strategy::single : Strategy::fsdp;
    CHECK(difference(test_case) == "");
    const MemoryFormula formula(test_case.model, options);
    const StepMemory step = formula.step(1);
    // Parameters and state at rest; the gradients, while the optimizer works.
    const Breakdown& rest = step.at_rest;
    const std::int64_t held = rest[MemoryKind::sharded_param] + rest[MemoryKind::optimizer] +
                              rest[MemoryKind::unsharded_param];
    const std::int64_t gradients =
        step.step_peak[MemoryKind::sharded_grad] + step.step_peak[MemoryKind::unsharded_grad];
    // A whole model has a copy of the adapters in bfloat16, too; shards are gathered in it.
    const std::int64_t copies = world_size == 1 ? 2 * kAdapters : 0;
    CHECK(held + gradients == (2 * kBase + 16 * kAdapters) / world_size + copies);
  }
}
