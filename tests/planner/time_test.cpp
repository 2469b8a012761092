// The time of a step by formula is that of the real engine on the virtual clock, to the picosecond.
#include "optim/adaptive_optimizers.h"
#include "planner/timed.h"
#include "support/catch.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::testing::step_time {
namespace {

using estimate::Placement;
using estimate::Reshard;
using optim::MixedPrecision;

}  // namespace

TEST_CASE("A step of FSDP takes what the formula says, whatever W, depth and resharding") {
  for (const int world_size : {1, 2, 3, 4, 8}) {
    for (const Reshard reshard : {Reshard::always, Reshard::never}) {
      for (const int depth : {0, 1, 2, 5}) {
        for (const int limit : {0, 1, 2}) {
          MemoryCase test_case = timed_case(world_size);
          test_case.options.reshard = reshard;
          test_case.options.prefetch_depth = depth;
          test_case.options.in_flight_limit = limit;
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
      test_case.options.reshard = Reshard::within;
      test_case.options.reshard_ranks = ranks;
      test_case.options.prefetch_depth = depth;
      check_times(test_case);
    }
  }
}

TEST_CASE("A step of several micro-batches takes what the formula says") {
  for (const Placement placement : {Placement::single, Placement::ddp, Placement::zero1,
                                    Placement::zero2, Placement::sharded}) {
    for (const int micro_steps : {2, 3, 4, 6, 16}) {
      for (const bool no_sync : {false, true}) {
        MemoryCase test_case = timed_case(placement == Placement::single ? 1 : 3);
        test_case.options.placement = placement;
        test_case.options.micro_steps = micro_steps;
        test_case.options.micro_steps_per_reduction = no_sync ? micro_steps : 1;
        test_case.options.bucket_bytes = 4000;
        test_case.options.zero.reduce_buffer_bytes = 3000;
        check_times(test_case);
      }
    }
  }
}

TEST_CASE("A step in mixed precision takes what the formula says") {
  for (const MixedPrecision& policy :
       {MixedPrecision{DType::bfloat16, DType::float32}, MixedPrecision{DType::bfloat16, {}},
        MixedPrecision{{}, DType::float16}}) {
    for (const Placement placement : {Placement::single, Placement::ddp, Placement::zero1,
                                      Placement::zero2, Placement::sharded}) {
      for (const int micro_steps : {1, 3}) {
        MemoryCase test_case = timed_case(placement == Placement::single ? 1 : 3);
        test_case.options.placement = placement;
        test_case.options.mixed_precision = policy;
        test_case.options.micro_steps = micro_steps;
        test_case.options.bucket_bytes = 2000;
        test_case.options.zero.broadcast_buffer_bytes = 2000;
        test_case.options.zero.broadcast_fp16 = micro_steps == 3;
        check_times(test_case);
      }
    }
  }
}

TEST_CASE("A step over whole parameters takes what the formula says, on every rank") {
  for (const Placement placement : {Placement::ddp, Placement::zero1, Placement::zero2}) {
    for (const int world_size : {1, 2, 3, 4}) {
      for (const std::size_t nbytes : {std::size_t{0}, std::size_t{3000}, std::size_t{1} << 20}) {
        for (int rank = 0; rank < world_size; ++rank) {
          MemoryCase test_case = timed_case(world_size);
          test_case.options.placement = placement;
          test_case.options.rank = rank;
          test_case.options.bucket_bytes = static_cast<std::int64_t>(nbytes);
          if (nbytes == 0) test_case.options.bucket_bytes = 1;
          test_case.options.zero = {
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

TEST_CASE("Two flat parameters per unit, another optimizer and a shorter sequence do too") {
  for (const int states : {0, 1, 2}) {
    for (const Placement placement : {Placement::ddp, Placement::sharded}) {
      MemoryCase test_case = timed_case(3);
      test_case.options.placement = placement;
      test_case.options.optimizer_states = states;
      test_case.options.length = 5;
      test_case.options.clips = states != 1;
      test_case.options.decays = [](const std::string& path) {
        return path.find("norm") == std::string::npos;
      };
      test_case.options.micro_steps = 2;
      check_times(test_case);
    }
  }
}

TEST_CASE("Every optimizer takes what the formula says") {
  using Make = std::function<std::shared_ptr<optim::Optimizer>()>;
  const std::vector<std::pair<std::string, Make>> optimizers{
      {"adam", [] { return std::make_shared<optim::Adam>(optim::Adam::Options{}); }},
      {"adamax", [] { return std::make_shared<optim::Adamax>(optim::Adamax::Options{}); }},
      {"adagrad", [] { return std::make_shared<optim::Adagrad>(optim::Adagrad::Options{}); }},
      {"adadelta", [] { return std::make_shared<optim::Adadelta>(optim::Adadelta::Options{}); }}};
  for (const auto& [name, make] : optimizers) {
    for (const Placement placement : {Placement::ddp, Placement::zero1, Placement::sharded}) {
      CAPTURE(name);
      MemoryCase test_case = timed_case(3);
      test_case.options.placement = placement;
      test_case.optimizer = make;
      test_case.options.optimizer_states = static_cast<int>(make()->state_names().size());
      test_case.options.update_flops = estimate::update_flops(name);
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
      test_case.options.placement = Placement::ddp;
      check_times(test_case);
    }
  }
}

}  // namespace fsdp::testing::step_time
