// The bytes of FSDP, really run, against the formula: every category, on every rank, at the eight
// states of every unit, and at the peaks of forward, backward and the step.

#include "memory/real_training.h"
#include "support/catch.h"

using namespace fsdp;
using namespace fsdp::paper;
using namespace fsdp::testing;

namespace {

// Sanitizers make a run ten times slower: they get every value of every option, and most pairs.
constexpr bool kAll = FSDP_SANITIZED == 0;

MemoryCase sharded_case(int world_size) {
  MemoryCase test_case;
  test_case.options.recipe.ranks = world_size;
  test_case.options.batch = 2;
  test_case.options.recipe.micro_steps = 3;
  test_case.options.recipe.clip = 1;
  return test_case;
}

nn::TransformerConfig tied(nn::TransformerConfig config) {
  config.tie_word_embeddings = true;
  return config;
}

}  // namespace

TEST_CASE("FSDP holds what the formula says: world sizes, prefetch, reshard, no_sync, tied") {
  const int depth = GENERATE(0, 1, 2);
  const bool no_sync = GENERATE(false, true);
  int number = 0;
  for (const int world_size : {1, 2, 3, 4}) {
    for (const auto reshard : {ReshardAfterForward::always(), ReshardAfterForward::never()}) {
      for (const bool is_tied : {false, true}) {
        for (const bool is_odd : {false, true}) {
          if (!kAll && (number++ + depth + (no_sync ? 1 : 0)) % 5 != 0) continue;
          MemoryCase test_case = sharded_case(world_size);
          if (is_odd) test_case.model = odd_model();
          test_case.model.tie_word_embeddings = is_tied;
          test_case.options.recipe.sharding.prefetch_depth = depth;
          test_case.options.recipe.sharding.reshard_after_forward = reshard;
          test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("FSDP holds what the formula says: reshard within groups of two") {
  for (const int world_size : {4, 8}) {
    for (const int depth : {0, 1, 2}) {
      for (const bool is_tied : {false, true}) {
        if (!kAll && is_tied != (depth == 1)) continue;
        MemoryCase test_case = sharded_case(world_size);
        test_case.model = is_tied ? tied(odd_model()) : odd_model();
        test_case.options.recipe.sharding.reshard_after_forward = ReshardAfterForward::within(2);
        test_case.options.recipe.sharding.prefetch_depth = depth;
        CHECK(difference(test_case) == "");
      }
    }
  }
}

TEST_CASE("FSDP holds what the formula says: more ranks than some unit has elements") {
  MemoryCase test_case = sharded_case(8);
  test_case.model = {.vocab_size = 3,
                     .hidden_size = 2,
                     .num_hidden_layers = 2,
                     .num_attention_heads = 1,
                     .intermediate_size = 1,
                     .max_position_embeddings = 4};
  CHECK(difference(test_case) == "");
}

TEST_CASE("FSDP holds what the formula says: reductions every two of six micro-steps") {
  MemoryCase test_case = sharded_case(2);
  test_case.model = odd_model();
  test_case.options.recipe.micro_steps = 6;
  test_case.options.recipe.micro_steps_per_reduction = 2;
  CHECK(difference(test_case) == "");
}

TEST_CASE("FSDP holds what the formula says: seven micro-steps, their partial sums") {
  MemoryCase test_case = sharded_case(3);
  test_case.options.recipe.micro_steps = 7;
  CHECK(difference(test_case) == "");
}

TEST_CASE("FSDP holds what the formula says: more or fewer gathers in flight than the depth") {
  for (const int limit : {1, 2, 5}) {
    MemoryCase test_case = sharded_case(2);
    test_case.model = odd_model();
    test_case.options.recipe.sharding.prefetch_depth = 3;
    test_case.options.recipe.sharding.in_flight_limit = limit;
    CHECK(difference(test_case) == "");
  }
}

TEST_CASE("FSDP holds what the formula says: two flat parameters a unit") {
  for (const bool no_sync : {false, true}) {
    MemoryCase test_case = sharded_case(4);
    test_case.model = odd_model();
    test_case.options.recipe.optimizer.decay_norms = false;
    test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
    CHECK(difference(test_case) == "");
  }
}

TEST_CASE("FSDP holds what the formula says: parameters that are ignored, so whole") {
  for (const std::string path : {"model.embed_tokens", "model.norm", "model.layers.1.mlp"}) {
    for (const bool is_tied : {false, true}) {
      MemoryCase test_case = sharded_case(3);
      test_case.model = is_tied ? tied(odd_model()) : odd_model();
      test_case.options.recipe.sharding.ignored = {path};
      test_case.options.recipe.micro_steps_per_reduction = is_tied ? 3 : 1;
      CAPTURE(path);
      CHECK(difference(test_case) == "");
    }
  }
}

TEST_CASE("FSDP holds what the formula says: threads, short sequences, other optimizers") {
  for (const int optimizer_states : {0, 1, 2}) {
    MemoryCase test_case = sharded_case(2);
    set_states(test_case, optimizer_states);
    test_case.options.threads = 2;
    test_case.options.length = 5;
    test_case.options.recipe.clip = 0;
    CHECK(difference(test_case) == "");
  }
}

TEST_CASE("DDP holds what the formula says") {
  for (const int world_size : {1, 2, 3}) {
    for (const bool no_sync : {false, true}) {
      MemoryCase test_case = sharded_case(world_size);
      test_case.model = world_size == 2 ? tied(odd_model()) : odd_model();
      test_case.options.recipe.strategy = Strategy::ddp;
      test_case.options.recipe.bucket_bytes = 4096;
      test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
      CHECK(difference(test_case) == "");
    }
  }
}

TEST_CASE("A rank reaches its bound exactly, and sharding is what lowers it") {
  MemoryCase test_case = sharded_case(4);
  test_case.model = odd_model();
  const std::int64_t bound = bound_bytes(test_case.model, test_case.options, test_case.steps);
  for (const MeasuredMemory& rank : measure(test_case)) {
    std::int64_t highest = 0;
    for (const StepMemory& step : rank.steps) {
      highest = std::max(highest, step.peak().total());
    }
    CHECK(highest == bound);
  }
  // DDP in disguise (everything kept, nothing freed) is far above it.
  MemoryOptions whole = test_case.options;
  whole.recipe.strategy = Strategy::ddp;
  CHECK(bound_bytes(test_case.model, whole, 2) > bound + 4 * test_case.model.parameter_count());
}
