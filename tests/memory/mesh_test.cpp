// The bytes of FSDP over a mesh of replicas, really run, against the formula.
#include "memory/real_training.h"
#include "support/catch.h"

#include <utility>
#include <vector>

using namespace fsdp;
using namespace fsdp::paper;
using namespace fsdp::testing;

namespace {

// Sanitizers make a run ten times slower: they get every value of every option, and some pairs.
constexpr bool kAll = FSDP_SANITIZED == 0;

}  // namespace

TEST_CASE("FSDP holds what the formula says: a mesh of replicas") {
  int number = 0;
  for (const int replicas : {2, 3}) {
    for (const int shards : {1, 2, 3, 4}) {
      for (const bool is_tied : {false, true}) {
        for (const bool no_sync : {false, true}) {
          if (!kAll && number++ % 5 != 0) continue;
          MemoryCase test_case;
          test_case.options.recipe.ranks = replicas * shards;
          test_case.options.batch = 2;
          test_case.options.recipe.micro_steps = 3;
          test_case.options.recipe.clip = 1;
          test_case.model = odd_model();
          test_case.model.tie_word_embeddings = is_tied;
          test_case.options.recipe.replicas = replicas;
          test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
          test_case.options.recipe.sharding.ignored = {"model.layers.1.mlp"};
          if (shards == 4) {
            test_case.options.recipe.sharding.reshard_after_forward =
                ReshardAfterForward::within(2);
          }
          if (is_tied) test_case.options.recipe.precision.param_dtype = DType::bfloat16;
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("A mesh with checkpointed blocks and offloaded shards holds what the formula says") {
  const std::vector<optim::MixedPrecision> policies = {
      {}, {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32}};
  const std::vector<optim::Offload> offloads = {
      {}, {.params = true}, {.params = true, .grads = true}};
  int number = 0;
  for (const auto& [replicas, shards] : {std::pair(2, 2), {4, 2}, {2, 4}}) {
    for (const Checkpointing checkpointing :
         {Checkpointing::none, Checkpointing::inside, Checkpointing::around}) {
      for (const optim::Offload offload : offloads) {
        for (const optim::MixedPrecision& policy : policies) {
          for (const bool no_sync : {false, true}) {
            if (!kAll && number++ % 5 != 0) continue;
            MemoryCase test_case;
            test_case.model = odd_model();
            test_case.options.recipe.ranks = replicas * shards;
            test_case.options.recipe.replicas = replicas;
            test_case.options.recipe.micro_steps = 2;
            test_case.options.recipe.micro_steps_per_reduction = no_sync ? 2 : 1;
            test_case.options.recipe.sharding.prefetch_depth = no_sync ? 2 : 1;
            test_case.options.recipe.clip = 1;
            test_case.options.recipe.checkpointing = checkpointing;
            test_case.options.recipe.sharding.offload = offload;
            test_case.options.recipe.precision = policy;
            CHECK(difference(test_case) == "");
          }
        }
      }
    }
  }
}
