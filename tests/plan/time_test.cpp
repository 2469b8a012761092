// The time of a step by formula is that of the real engine on the virtual clock, to the picosecond.
#include "paper/time_formula.h"
#include "plan/timed.h"
#include "support/catch.h"

#include <string>
#include <utility>
#include <vector>

namespace fsdp::testing::step_time {
namespace {

using optim::MixedPrecision;
using optim::Strategy;

}  // namespace

TEST_CASE("A step of FSDP takes what the formula says, whatever W, depth and resharding") {
  for (const int world_size : {1, 2, 3, 4, 8}) {
    for (const auto reshard : {ReshardAfterForward::always(), ReshardAfterForward::never()}) {
      for (const int depth : {0, 1, 2, 5}) {
        for (const int limit : {0, 1, 2}) {
          MemoryCase test_case = timed_case(world_size);
          test_case.options.recipe.sharding.reshard_after_forward = reshard;
          test_case.options.recipe.sharding.prefetch_depth = depth;
          test_case.options.recipe.sharding.in_flight_limit = limit;
          test_case.model.tie_word_embeddings = depth == 2;
          check_times(test_case);
        }
      }
    }
  }
}

TEST_CASE("Parts kept within a subgroup take what the formula says") {
  for (const auto& [world_size, ranks] : {std::pair(4, 2), {6, 3}, {8, 2}, {8, 4}}) {
    for (const int depth : {0, 1, 3}) {
      MemoryCase test_case = timed_case(world_size);
      test_case.options.recipe.sharding.reshard_after_forward = ReshardAfterForward::within(ranks);
      test_case.options.recipe.sharding.prefetch_depth = depth;
      check_times(test_case);
    }
  }
}

TEST_CASE("A step of several micro-batches takes what the formula says") {
  for (const Strategy placement :
       {Strategy::single, Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::fsdp}) {
    for (const int micro_steps : {2, 3, 4, 6, 16}) {
      for (const bool no_sync : {false, true}) {
        MemoryCase test_case = timed_case(placement == Strategy::single ? 1 : 3);
        test_case.options.recipe.strategy = placement;
        test_case.options.recipe.micro_steps = micro_steps;
        test_case.options.recipe.micro_steps_per_reduction = no_sync ? micro_steps : 1;
        test_case.options.recipe.bucket_bytes = 4000;
        test_case.options.recipe.zero.reduce_buffer_bytes = 3000;
        check_times(test_case);
      }
    }
  }
}

TEST_CASE("Means take a pass over gradients only if they may be larger than the sum") {
  for (const Strategy placement :
       {Strategy::single, Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::fsdp}) {
    for (const int micro_steps : {1, 2, 3}) {
      for (const bool prescale : {false, true}) {
        MemoryCase test_case = timed_case(placement == Strategy::single ? 1 : 2);
        test_case.options.recipe.strategy = placement;
        test_case.options.recipe.micro_steps = micro_steps;
        test_case.options.recipe.prescale = prescale;
        check_times(test_case);
        CHECK(test_case.options.recipe.has_mean_pass() == (prescale && micro_steps == 3));
      }
    }
  }
  MemoryCase mesh = timed_case(15);  // the double 1.0/45 * 5 is not the double 1.0/9
  mesh.options.recipe.replicas = 5;
  mesh.options.recipe.micro_steps = 3;
  check_times(mesh);
}

TEST_CASE("A step in mixed precision takes what the formula says") {
  for (const MixedPrecision& policy :
       {MixedPrecision{DType::bfloat16, DType::float32}, MixedPrecision{DType::bfloat16, {}},
        MixedPrecision{{}, DType::float16}}) {
    for (const Strategy placement :
         {Strategy::single, Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::fsdp}) {
      for (const int micro_steps : {1, 3}) {
        MemoryCase test_case = timed_case(placement == Strategy::single ? 1 : 3);
        test_case.options.recipe.strategy = placement;
        test_case.options.recipe.precision = policy;
        test_case.options.recipe.micro_steps = micro_steps;
        test_case.options.recipe.bucket_bytes = 2000;
        test_case.options.recipe.zero.broadcast_buffer_bytes = 2000;
        test_case.options.recipe.zero.broadcast_fp16 = micro_steps == 3;
        check_times(test_case);
      }
    }
  }
}

TEST_CASE("A step over whole parameters takes what the formula says, on every rank") {
  for (const Strategy placement : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
    for (const int world_size : {1, 2, 3, 4}) {
      for (const std::size_t nbytes : {std::size_t{0}, std::size_t{3000}, std::size_t{1} << 20}) {
        for (int rank = 0; rank < world_size; ++rank) {
          MemoryCase test_case = timed_case(world_size);
          test_case.options.recipe.strategy = placement;
          test_case.options.rank = rank;
          test_case.options.recipe.bucket_bytes = nbytes;
          if (nbytes == 0) test_case.options.recipe.bucket_bytes = 1;
          test_case.options.recipe.zero = {
              .partition = rank % 2 == 0 ? optim::Partition::greedy : optim::Partition::flat,
              .reduce_buffer_bytes = nbytes,
              .broadcast_buffer_bytes = nbytes};
          test_case.model.tie_word_embeddings = world_size == 3;
          check_times(test_case);
        }
      }
    }
  }
}

TEST_CASE("ZeRO in 16 bits takes what the formula says, on every rank") {
  for (const Strategy placement : {Strategy::zero1, Strategy::zero2}) {
    for (const DType param : {DType::bfloat16, DType::float16}) {
      for (const std::size_t nbytes : {std::size_t{0}, std::size_t{3000}, std::size_t{1} << 20}) {
        for (int rank = 0; rank < 3; ++rank) {
          for (const bool halves : {false, true}) {
            MemoryCase test_case = timed_case(3);
            test_case.options.recipe.strategy = placement;
            test_case.options.rank = rank;
            test_case.options.recipe.precision = {param, DType::float32};
            test_case.options.recipe.zero = {
                .partition = halves ? optim::Partition::greedy : optim::Partition::flat,
                .broadcast_buffer_bytes = nbytes,
                .broadcast_fp16 = halves == (rank == 1)};
            check_times(test_case);
          }
        }
      }
    }
  }
}

TEST_CASE("Two flat parameters per unit, another optimizer and a shorter sequence do too") {
  for (const int states : {0, 1, 2}) {
    for (const Strategy placement : {Strategy::ddp, Strategy::fsdp}) {
      MemoryCase test_case = timed_case(3);
      test_case.options.recipe.strategy = placement;
      set_states(test_case, states);
      test_case.options.length = 5;
      test_case.options.recipe.clip = states != 1 ? 1 : 0;
      test_case.options.recipe.optimizer.decay_norms = false;
      test_case.options.recipe.micro_steps = 2;
      check_times(test_case);
    }
  }
}

TEST_CASE("Every optimizer takes what the formula says") {
  for (const std::string& name : ops::optimizer_names()) {
    for (const Strategy placement : {Strategy::ddp, Strategy::zero1, Strategy::fsdp}) {
      CAPTURE(name);
      MemoryCase test_case = timed_case(3);
      test_case.options.recipe.strategy = placement;
      test_case.options.recipe.optimizer.name = name;
      check_times(test_case);
      CHECK(difference_in_time(test_case, {.ps_per_flop = 1000}) == "");  // the flops bind
    }
  }
}

TEST_CASE("Nano and tiny take what the formula says") {
  for (const auto& model : {nn::TransformerConfig::nano(), nn::TransformerConfig::tiny()}) {
    for (const int world_size : {1, 3, 4, 64}) {
      MemoryCase test_case = timed_case(world_size);
      test_case.model = model;
      check_times(test_case);
      test_case.options.recipe.strategy = Strategy::ddp;
      check_times(test_case);
    }
  }
}

TEST_CASE("What the clock has no rules for is refused by its key") {
  const auto refuses = [](const std::string& key, const auto& change) {
    MemoryCase test_case = timed_case(2);
    change(test_case.options.recipe);
    const auto time = [&] {
      return paper::TimeFormula(test_case.model, test_case.options, kOddMachine).step(0).total();
    };
    CHECK_THROWS_AS(time(), InputError);
    CHECK_THROWS_WITH(time(), Catch::Matchers::StartsWith(key + ": "));
  };
  refuses("lora.rank", [](auto& recipe) { recipe.lora.rank = 4; });
  refuses("frozen", [](auto& recipe) { recipe.frozen = {"model.embed_tokens"}; });
  refuses("ignored", [](auto& recipe) { recipe.sharding.ignored = {"model.norm"}; });
  refuses("parallel.overlap_comm", [](auto& recipe) { recipe.zero.reductions.overlap = false; });
  refuses("parallel.communication_data_type",
          [](auto& recipe) { recipe.zero.reductions.compression = DType::float16; });
  refuses("parallel.reduce_scatter", [](auto& recipe) { recipe.zero.reduce_scatter = false; });
  refuses("parallel.contiguous_gradients",
          [](auto& recipe) { recipe.zero.contiguous_gradients = false; });
}

}  // namespace fsdp::testing::step_time
