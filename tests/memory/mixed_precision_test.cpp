// The bytes of mixed precision, really run, against the formula: masters in float32, what the model
// reads and sums of gradients in other formats.

#include "memory/real_training.h"
#include "support/catch.h"

using namespace fsdp;
using namespace fsdp::paper;
using namespace fsdp::testing;

namespace {

constexpr int kEvery = FSDP_SANITIZED ? 7 : 1;  // a part of the cases is enough there

const std::vector<optim::MixedPrecision> kPolicies = {
    {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32},
    {.param_dtype = DType::bfloat16, .reduce_dtype = {}},
    {.param_dtype = DType::float16, .reduce_dtype = DType::bfloat16},
    {.param_dtype = {}, .reduce_dtype = DType::float16},
};

MemoryCase mixed_case(int world_size, const optim::MixedPrecision& policy) {
  MemoryCase test_case;
  test_case.model = odd_model();
  test_case.options.recipe.ranks = world_size;
  test_case.options.batch = 2;
  test_case.options.recipe.micro_steps = 3;
  test_case.options.recipe.clip = 1;
  test_case.options.recipe.precision = policy;
  test_case.options.recipe.bucket_bytes = 4096;
  return test_case;
}

}  // namespace

TEST_CASE("FSDP under mixed precision holds what the formula says") {
  int number = 0;
  for (const optim::MixedPrecision& policy : kPolicies) {
    for (const int world_size : {1, 2, 3, 4}) {
      for (const int depth : {0, 1, 2}) {
        for (const bool is_tied : {false, true}) {
          for (const bool no_sync : {false, true}) {
            if (number++ % kEvery != 0) continue;
            MemoryCase test_case = mixed_case(world_size, policy);
            test_case.model.tie_word_embeddings = is_tied;
            test_case.options.recipe.sharding.prefetch_depth = depth;
            test_case.options.recipe.sharding.reshard_after_forward =
                depth == 2 ? ReshardAfterForward::never() : ReshardAfterForward::always();
            test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
            CHECK(difference(test_case) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("FSDP under mixed precision within groups, and with two flat parameters a unit") {
  for (const optim::MixedPrecision& policy : kPolicies) {
    MemoryCase test_case = mixed_case(4, policy);
    test_case.options.recipe.sharding.reshard_after_forward = ReshardAfterForward::within(2);
    CHECK(difference(test_case) == "");
    test_case.options.recipe.optimizer.decay_norms = false;
    CHECK(difference(test_case) == "");
  }
}

TEST_CASE("Ignored parameters under mixed precision hold what the formula says") {
  for (const optim::MixedPrecision& policy : kPolicies) {
    for (const std::string path : {"model.embed_tokens", "model.norm", "model.layers.1.mlp"}) {
      MemoryCase test_case = mixed_case(3, policy);
      test_case.options.recipe.sharding.ignored = {path};
      test_case.options.recipe.bucket_bytes = optim::kBucketBytes;
      CAPTURE(path);
      CHECK(difference(test_case) == "");
    }
  }
}

TEST_CASE("DDP and a single process under mixed precision hold what the formula says") {
  for (const optim::MixedPrecision& policy : kPolicies) {
    for (const bool is_tied : {false, true}) {
      for (const int world_size : {1, 2, 3}) {
        for (const bool no_sync : {false, true}) {
          MemoryCase test_case = mixed_case(world_size, policy);
          test_case.model.tie_word_embeddings = is_tied;
          test_case.options.recipe.strategy = Strategy::ddp;
          test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
          CAPTURE(is_tied);
          CHECK(difference(test_case) == "");
        }
      }
      MemoryCase test_case = mixed_case(1, policy);
      test_case.model.tie_word_embeddings = is_tied;
      test_case.options.recipe.strategy = Strategy::single;
      CHECK(difference(test_case) == "");
    }
  }
}

// Per unit: masters and state stay; what is gathered, made and computed has half the bytes.
TEST_CASE("bfloat16 halves what moves, and leaves the masters as they are") {
  MemoryCase in_float32 = mixed_case(4, {});
  MemoryCase mixed = mixed_case(4, kPolicies[0]);
  const MemoryFormula a(in_float32.model, in_float32.options);
  const MemoryFormula b(mixed.model, mixed.options);
  const auto wide = a.step(1).micro_steps[0].snapshots;
  const auto narrow = b.step(1).micro_steps[0].snapshots;
  REQUIRE(wide.size() == narrow.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    CHECK(narrow[i].bytes[MemoryKind::sharded_param] == wide[i].bytes[MemoryKind::sharded_param]);
    CHECK(narrow[i].bytes[MemoryKind::optimizer] == wide[i].bytes[MemoryKind::optimizer]);
    CHECK(2 * narrow[i].bytes[MemoryKind::unsharded_param] ==
          wide[i].bytes[MemoryKind::unsharded_param]);
  }
}
