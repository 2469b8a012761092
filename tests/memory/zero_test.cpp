// ZeRO-1 and ZeRO-2 hold what the formula says, on every rank, at every snapshot and peak.
#include "memory/real_training.h"
#include "support/catch.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::testing::zero_memory {
namespace {

using optim::Partition;
using optim::Strategy;
using paper::MemoryOptions;

constexpr Strategy kZero[] = {Strategy::zero1, Strategy::zero2};
constexpr Partition kPartitions[] = {Partition::greedy, Partition::flat, Partition::round_robin};

MemoryCase zero_case(Strategy placement, Partition partition, int world_size) {
  MemoryCase test_case = odd_case(placement, world_size);
  test_case.options.recipe.zero = {
      .partition = partition, .reduce_buffer_bytes = 3000, .broadcast_buffer_bytes = 5000};
  return test_case;
}

}  // namespace

TEST_CASE("ZeRO-1 and ZeRO-2 hold what the formula says") {
  for (const Strategy placement : kZero) {
    for (const Partition partition : kPartitions) {
      for (const int world_size : {1, 2, 3, 4}) {
        for (const bool no_sync : {false, true}) {
          MemoryCase test_case = zero_case(placement, partition, world_size);
          test_case.model.tie_word_embeddings = world_size == 2;
          test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
          CAPTURE(placement == Strategy::zero2, static_cast<int>(partition));
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("ZeRO-1 and ZeRO-2 hold what the formula says, whatever travels together") {
  constexpr std::size_t kAll = std::size_t{1} << 30;
  for (const Strategy placement : kZero) {
    for (const Partition partition : kPartitions) {
      for (const std::size_t nbytes : {std::size_t{0}, std::size_t{200}, kAll}) {
        for (const bool halves : {false, true}) {
          MemoryCase test_case = zero_case(placement, partition, 3);
          test_case.options.recipe.micro_steps = 2;
          test_case.options.recipe.clip = halves ? 1 : 0;
          set_states(test_case, halves ? 1 : 2);
          test_case.options.recipe.zero = {.partition = partition,
                                           .reduce_buffer_bytes = nbytes,
                                           .broadcast_buffer_bytes = nbytes,
                                           .broadcast_fp16 = halves};
          CAPTURE(placement == Strategy::zero2, static_cast<int>(partition), nbytes, halves);
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("whole gradients that are compressed hold what the formula says, under every policy") {
  using Policy = optim::MixedPrecision;
  for (const Policy& policy :
       {Policy{}, Policy{DType::bfloat16, DType::float32}, Policy{DType::float16, {}}}) {
    for (const Strategy placement :
         {Strategy::single, Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
      for (const int world_size : {1, 2, 3}) {
        for (const bool no_sync : {false, true}) {
          if (placement == Strategy::single && world_size > 1) continue;
          MemoryCase test_case = zero_case(placement, Partition::flat, world_size);
          test_case.options.recipe.precision = policy;
          test_case.options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
          test_case.options.recipe.zero.reductions.compression = DType::bfloat16;
          if (world_size == 3) test_case.options.recipe.zero.reduce_buffer_bytes = 0;
          CAPTURE(static_cast<int>(placement), no_sync);
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("ZeRO-2 holds what the formula says, whatever is switched off") {
  for (const Partition partition : kPartitions) {
    for (const int world_size : {1, 2, 3}) {
      for (const bool contiguous : {false, true}) {
        for (const bool overlap : {false, true}) {
          MemoryCase test_case = zero_case(Strategy::zero2, partition, world_size);
          test_case.options.recipe.zero.contiguous_gradients = contiguous;
          test_case.options.recipe.zero.reductions.overlap = overlap;
          test_case.options.recipe.zero.reduce_scatter = overlap == contiguous;
          test_case.options.recipe.micro_steps_per_reduction = overlap ? 3 : 1;
          test_case.options.recipe.precision.reduce_dtype =
              world_size == 3 ? DType::bfloat16 : DType::float32;
          CAPTURE(static_cast<int>(partition), contiguous, overlap);
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("ZeRO-1 and ZeRO-2 under mixed precision hold what the formula says") {
  using Policy = optim::MixedPrecision;
  for (const Policy& policy : {Policy{DType::bfloat16, DType::float32}, Policy{DType::bfloat16, {}},
                               Policy{{}, DType::bfloat16}}) {
    for (const Strategy placement : kZero) {
      for (const Partition partition : kPartitions) {
        for (const int world_size : {1, 2, 3}) {
          MemoryCase test_case = zero_case(placement, partition, world_size);
          test_case.options.recipe.precision = policy;
          test_case.options.recipe.micro_steps_per_reduction = world_size == 2 ? 3 : 1;
          if (world_size == 3) test_case.options.recipe.zero.reduce_buffer_bytes = 0;
          CAPTURE(placement == Strategy::zero2, static_cast<int>(partition));
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("ZeRO under mixed precision holds masters only of what a rank owns") {
  for (const Strategy placement : kZero) {
    for (const Partition partition : kPartitions) {
      for (const int world_size : {1, 2, 3, 4}) {
        MemoryCase test_case = zero_case(placement, partition, world_size);
        test_case.options.recipe.precision = {DType::bfloat16, DType::float32};
        test_case.options.recipe.micro_steps = 1;
        const std::int64_t N = test_case.model.parameter_count();
        std::int64_t owned = 0;
        for (const MeasuredMemory& rank : measure(test_case)) {
          const std::int64_t load = rank.steps.back().at_rest[MemoryKind::optimizer] / 8;
          const Breakdown& step = rank.steps.back().step_peak;
          const std::int64_t states = step[MemoryKind::unsharded_param] +
                                      step[MemoryKind::unsharded_grad] +
                                      step[MemoryKind::optimizer];
          CAPTURE(static_cast<int>(partition), world_size, load);
          CHECK(rank.before[MemoryKind::unsharded_param] == 2 * N + 4 * load);
          if (placement == Strategy::zero1) {
            CHECK(states == (2 + 4) * N + 12 * load);
          } else {
            CHECK(states == 2 * N + (12 + 4) * load);
          }
          if (partition != Partition::greedy) CHECK(load <= N / world_size + 1);
          owned += load;
        }
        CHECK(owned == N);
      }
    }
  }
}

TEST_CASE("ZeRO holds each master once, whether it is trained or not") {
  for (const Strategy placement : kZero) {
    for (const Partition partition : kPartitions) {
      for (const int world_size : {1, 2, 3, 4}) {
        for (const bool halves : {false, true}) {
          MemoryCase test_case = zero_case(placement, partition, world_size);
          test_case.options.recipe.precision.param_dtype =
              world_size == 3 ? DType::float16 : DType::bfloat16;
          test_case.options.recipe.zero.broadcast_fp16 = halves;
          test_case.options.recipe.zero.broadcast_buffer_bytes = halves ? 200 : 0;
          train_only(test_case, [](const std::string& path) {
            return path.find("layers.1") != std::string::npos || path.starts_with("lm_head");
          });
          CAPTURE(static_cast<int>(partition), world_size, halves);
          CHECK(difference(test_case) == "");
          const std::int64_t N = test_case.model.parameter_count();
          std::int64_t held = 0;
          for (const MeasuredMemory& rank : measure(test_case)) {
            held += rank.before[MemoryKind::unsharded_param];
          }
          CHECK(held == world_size * 2 * N + 4 * N);
        }
      }
    }
  }
}

TEST_CASE("ZeRO in 16 bits holds what the formula says, whatever is broadcast together") {
  for (const DType param : {DType::bfloat16, DType::float16}) {
    for (const Partition partition : kPartitions) {
      for (const std::size_t nbytes : {std::size_t{0}, std::size_t{200}, std::size_t{1} << 30}) {
        for (const bool halves : {false, true}) {
          MemoryCase test_case = zero_case(Strategy::zero1, partition, 3);
          test_case.options.recipe.precision.param_dtype = param;
          test_case.options.recipe.micro_steps = 1;
          test_case.options.recipe.zero.broadcast_buffer_bytes = nbytes;
          test_case.options.recipe.zero.broadcast_fp16 = halves;
          CAPTURE(param == DType::float16, static_cast<int>(partition), nbytes, halves);
          CHECK(difference(test_case) == "");
        }
      }
    }
  }
}

TEST_CASE("ZeRO-1 and ZeRO-2 of a model that is partly frozen, or LoRA's, hold the same") {
  for (const Strategy placement : kZero) {
    for (const Partition partition : kPartitions) {
      for (const bool has_lora : {false, true}) {
        MemoryCase test_case = zero_case(placement, partition, 2);
        if (has_lora) {
          test_case.options.recipe.lora.rank = 3;
          test_case.options.recipe.lora.targets = {"q_proj", "down_proj"};
          test_case.options.recipe.precision = {DType::bfloat16, DType::float32};
        } else {
          train_only(test_case, [](const std::string& path) {
            return path.find("layers.1") != std::string::npos || path.starts_with("lm_head");
          });
        }
        CAPTURE(placement == Strategy::zero2, static_cast<int>(partition), has_lora);
        CHECK(difference(test_case) == "");
      }
    }
  }
}

TEST_CASE("with ZeRO the bound is that of the rank that holds most, and lower for each stage") {
  const auto bound = [](Strategy placement, Partition partition) {
    const MemoryCase test_case = zero_case(placement, partition, 4);
    return bound_bytes(test_case.model, test_case.options, 2);
  };
  for (const Strategy placement : kZero) {
    for (const Partition partition : kPartitions) {
      const MemoryCase test_case = zero_case(placement, partition, 4);
      std::int64_t highest = 0;
      for (const MeasuredMemory& rank : measure(test_case)) {
        for (const auto& step : rank.steps) highest = std::max(highest, step.peak().total());
      }
      CHECK(highest == bound(placement, partition));
    }
  }
  const std::int64_t ddp = bound(Strategy::ddp, Partition::greedy);
  CHECK(bound(Strategy::zero1, Partition::greedy) < ddp);
  CHECK(bound(Strategy::zero1, Partition::flat) < bound(Strategy::zero1, Partition::greedy));
  CHECK(bound(Strategy::zero2, Partition::flat) < bound(Strategy::zero1, Partition::flat));
}

TEST_CASE("the bounds of all ranks, counted in one walk, are those of each rank by itself") {
  for (const Strategy placement : kZero) {
    for (const Partition partition : kPartitions) {
      for (const int world_size : {1, 3, 8, 40}) {
        for (const bool no_sync : {false, true}) {
          MemoryCase test_case = zero_case(placement, partition, world_size);
          MemoryOptions& options = test_case.options;
          options.recipe.micro_steps_per_reduction = no_sync ? 3 : 1;
          options.recipe.zero.contiguous_gradients = world_size != 3;
          options.recipe.zero.reductions.overlap = no_sync;
          if (world_size == 8) options.recipe.zero.reductions.compression = DType::float16;
          if (world_size == 40) options.recipe.precision.reduce_dtype = DType::bfloat16;
          if (world_size != 1) options.recipe.precision.param_dtype = DType::bfloat16;
          for (const int steps : {1, 2, 9}) {
            const auto bounds = bound_bytes_by_rank(test_case.model, options, steps);
            REQUIRE(bounds.size() == static_cast<std::size_t>(world_size));
            for (options.rank = 0; options.rank < world_size; ++options.rank) {
              CAPTURE(world_size, no_sync, steps, options.rank, static_cast<int>(partition));
              CHECK(bounds[static_cast<std::size_t>(options.rank)] ==
                    paper::MemoryFormula(test_case.model, options).peak(steps).total());
            }
            options.rank = 0;
          }
        }
      }
    }
  }
  const MemoryCase test_case = zero_case(Strategy::zero1, Partition::flat, 2);
  CHECK_THROWS_AS(bound_bytes_by_rank(test_case.model, test_case.options, 0), Error);
}

TEST_CASE("one tensor that is larger than all others decides what the greedy partition saves") {
  MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
  options.recipe.strategy = Strategy::zero1;
  nn::TransformerConfig model = nn::TransformerConfig::nano();
  model.vocab_size = 100'000;
  model.tie_word_embeddings = true;
  const std::int64_t table = model.vocab_size * model.hidden_size;
  const auto most_state = [&](Partition partition, int world_size) {
    options.recipe.zero.partition = partition;
    options.recipe.ranks = world_size;
    std::int64_t most = 0;
    for (options.rank = 0; options.rank < world_size; ++options.rank) {
      const paper::MemoryFormula formula(model, options);
      most = std::max(most, formula.step(0).at_rest[MemoryKind::optimizer]);
    }
    options.rank = 0;
    return most;
  };
  CHECK(most_state(Partition::greedy, 8) == 8 * table);  // two states of 4 bytes: no rank shares it
  CHECK(most_state(Partition::greedy, 64) == 8 * table);
  CHECK(most_state(Partition::flat, 8) == 8 * ((model.parameter_count() + 7) / 8));
}

TEST_CASE("the formula refuses a rank that does not exist") {
  MemoryCase test_case = zero_case(Strategy::zero1, Partition::greedy, 2);
  test_case.options.rank = 2;
  CHECK_THAT(message_of<Error>([&] { paper::MemoryFormula(test_case.model, test_case.options); }),
             contains("rank 2 of 2"));
}

}  // namespace fsdp::testing::zero_memory
