// ZeRO-1 and ZeRO-2 against a single process, to the last bit: so they also equal DDP and FSDP.
#include "support/catch.h"
#include "support/training.h"
#include "tensor/cast.h"

namespace fsdp::testing::zero_test {
namespace {

using optim::Partition;

/// The first parameter whose copies are not the rounded masters; "" if there is none.
std::string wrong_copy(const TrainingResult& result, const TrainingCase& options) {
  if (result.copies.empty()) return "all";
  for (const auto& [path, copy] : result.copies) {
    const std::vector<float>& master = result.state.at("param/" + path);
    const Tensor whole = Tensor::from(master, {static_cast<std::int64_t>(master.size())});
    const DType read = options.recipe.precision.param_dtype_for(DType::float32);
    const Tensor rounded = cast(cast(whole, read), DType::float32);
    if (copy != rounded.to_vector<float>()) return path;
  }
  return "";
}

/// Both engines and both partitions, at every W, with gradients that travel alone and together.
void check_all(const TrainingCase& base, const TrainingResult& expected,
               const std::vector<int>& world_sizes = {1, 2, 4, 8}) {
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    for (const Partition partition : {Partition::greedy, Partition::flat}) {
      for (const int world_size : world_sizes) {
        for (const bool no_sync : {false, true}) {
          TrainingCase options = base.spread(strategy, world_size, no_sync);
          options.recipe.zero.partition = partition;
          if (strategy == Strategy::zero1) options.recipe.sharding.offload.grads = false;
          options.recipe.zero.reduce_buffer_bytes = no_sync ? 0 : 2000;
          options.recipe.zero.broadcast_buffer_bytes = world_size == 2 ? 0 : 5000;
          CAPTURE(world_size, no_sync, strategy == Strategy::zero2, partition == Partition::flat);
          const TrainingResult result = train(options);
          CHECK(difference(result, expected) == "");
          CHECK(wrong_copy(result, options) == "");
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("ZeRO-1 and ZeRO-2 equal a single process in every bit") {
  TrainingCase base;
  base.steps = FSDP_SANITIZED ? 2 : 10;
  base.recipe.clip = 0.5;
  check_all(base, train(base));
}

TEST_CASE("ZeRO-1 and ZeRO-2 with frozen and tied parameters change no bit") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  base.model.tie_word_embeddings = GENERATE(true, false);
  if (!base.model.tie_word_embeddings) {
    base.recipe.frozen = {"model.embed_tokens", "model.layers.0", "model.layers.1.mlp.gate_proj"};
  }
  check_all(base, train(base));
}

TEST_CASE("ZeRO-1 and ZeRO-2 under mixed precision change no bit") {
  TrainingCase base;
  base.recipe.precision = GENERATE(
      optim::MixedPrecision{.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32},
      optim::MixedPrecision{.param_dtype = DType::bfloat16, .reduce_dtype = {}},
      optim::MixedPrecision{.param_dtype = DType::float16, .reduce_dtype = DType::float32});
  check_all(base, train(base));
}

TEST_CASE("ZeRO-1 and ZeRO-2 under mixed precision with frozen parameters and LoRA change no bit") {
  TrainingCase base;
  base.steps = 2;
  base.recipe.clip = 0.5;
  base.recipe.precision = {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32};
  if (GENERATE(true, false)) {
    base.recipe.frozen = {"model.embed_tokens", "model.layers.0", "model.layers.1.mlp.gate_proj"};
  } else {
    base.recipe.lora.rank = 3;
  }
  check_all(base, train(base), {1, 2, 4});
}

TEST_CASE("ZeRO with its optimizer on the host equals a single process in every bit") {
  TrainingCase base;
  base.steps = FSDP_SANITIZED ? 2 : 5;
  base.recipe.clip = 0.5;
  base.recipe.precision = GENERATE(
      optim::MixedPrecision{},
      optim::MixedPrecision{.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32},
      optim::MixedPrecision{.param_dtype = DType::float16, .reduce_dtype = {}});
  const TrainingResult expected = train(base);
  for (const bool grads : {false, true}) {
    base.recipe.sharding.offload = {.grads = grads, .optimizer = true};
    check_all(base, expected, {1, 2, 4});
  }
}

TEST_CASE("three ranks of ZeRO under mixed precision have the bits of DDP's") {
  TrainingCase base;
  base.recipe.micro_steps = 6;
  base.steps = 2;
  base.recipe.precision = {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32};
  base = base.spread(Strategy::ddp, 3);
  const TrainingResult expected = train(base);
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    for (const Partition partition : {Partition::greedy, Partition::flat, Partition::round_robin}) {
      base.recipe.strategy = strategy;
      base.recipe.zero = {.partition = partition, .broadcast_buffer_bytes = 3000};
      for (const bool is_offloaded : {false, true}) {
        base.recipe.sharding.offload = {.grads = is_offloaded && strategy == Strategy::zero2,
                                        .optimizer = is_offloaded};
        const TrainingResult result = train(base);
        CHECK(difference(result, expected) == "");
        CHECK(wrong_copy(result, base) == "");
      }
    }
  }
}

TEST_CASE("what is switched, frozen or compressed stays the same with the optimizer on the host") {
  TrainingCase base;
  base.recipe.clip = 0.5;
  base.recipe.micro_steps = 6;
  base = base.spread(GENERATE(Strategy::zero1, Strategy::zero2), 3);
  base.recipe.precision.param_dtype = DType::bfloat16;
  base.recipe.zero = {.partition = Partition::flat, .reduce_buffer_bytes = 2000};
  const auto check = [](TrainingCase options) {
    const TrainingResult expected = train(options);
    options.recipe.sharding.offload = {.grads = options.recipe.strategy == Strategy::zero2,
                                       .optimizer = true};
    const TrainingResult result = train(options);
    CHECK(difference(result, expected) == "");
    CHECK(result.copies == expected.copies);
  };
  TrainingCase compressed = base;
  compressed.recipe.zero.reductions = {.compression = DType::float16, .overlap = false};
  compressed.recipe.zero.reduce_scatter = compressed.recipe.zero.contiguous_gradients = false;
  check(compressed);
  TrainingCase rounded = base;
  rounded.recipe.zero.broadcast_fp16 = true;
  check(rounded);
  TrainingCase frozen = base;
  frozen.recipe.frozen = {"model.embed_tokens", "model.layers.1.mlp.gate_proj"};
  check(frozen);
  TrainingCase lora = base;
  lora.recipe.lora.rank = 3;
  check(lora);
}

TEST_CASE("a broadcast in float16 under mixed precision rounds masters the same at every W") {
  TrainingCase base;
  base.steps = 2;
  base.recipe.precision.param_dtype = GENERATE(DType::bfloat16, DType::float16);
  base.recipe.strategy = Strategy::zero1;
  const TrainingResult exact = train(base);
  base.recipe.zero.broadcast_fp16 = true;
  const TrainingResult rounded = train(base);
  CHECK(difference(rounded, exact) != "");
  for (const auto& [name, values] : rounded.state) {
    if (!name.starts_with("param/")) continue;
    const Tensor whole = Tensor::from(values, {static_cast<std::int64_t>(values.size())});
    CHECK(cast(cast(whole, DType::float16), DType::float32).to_vector<float>() == values);
  }
  check_all(base, rounded, {1, 2, 4});
}

}  // namespace fsdp::testing::zero_test
