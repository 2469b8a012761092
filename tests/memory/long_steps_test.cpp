// Steps of many micro-steps: the peak that is found without walking through all of them.
#include "memory/real_training.h"
#include "paper/memory_formula.h"
#include "paper/step_walk.h"
#include "support/catch.h"

#include <string>
#include <vector>

using namespace fsdp;
using namespace fsdp::paper;
using namespace fsdp::testing;

namespace {

struct Named {
  std::string name;
  MemoryOptions options;
};

// What decides which gradients still travel when a micro-step begins.
std::vector<Named> trainings() {
  MemoryOptions base;
  base.recipe.strategy = Strategy::fsdp;
  base.recipe.ranks = 4;
  base.batch = 2;
  std::vector<Named> all;
  const auto add = [&](const std::string& name, const auto& change) {
    all.push_back({name, base});
    change(all.back().options);
  };
  add("single", [](MemoryOptions& options) {
    options.recipe.strategy = Strategy::single;
    options.recipe.ranks = 1;
  });
  const optim::MixedPrecision halves{.param_dtype = DType::bfloat16,
                                     .reduce_dtype = DType::float32};
  for (const Strategy placement : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
    const std::string number = std::to_string(static_cast<int>(placement));
    add("placement " + number, [&](MemoryOptions& options) {
      options.recipe.strategy = placement;
      options.recipe.bucket_bytes = 256;
      options.rank = placement == Strategy::ddp ? 0 : 2;
    });
    add("placement " + number + " in bfloat16, sums in float16", [&](MemoryOptions& options) {
      options.recipe.strategy = placement;
      options.recipe.precision = halves;
      options.recipe.zero.reductions.compression = DType::float16;
    });
  }
  for (const int replicas : {1, 2}) {
    for (const optim::Offload offload :
         {optim::Offload{}, {.params = true}, {.params = true, .grads = true}}) {
      add("sharded, " + std::to_string(replicas) + " replicas" +
              (offload.grads    ? ", all offloaded"
               : offload.params ? ", parameters offloaded"
                                : ""),
          [&](MemoryOptions& options) {
            options.recipe.replicas = replicas;
            options.recipe.sharding.offload = offload;
          });
      add(all.back().name + ", in bfloat16, kept", [&](MemoryOptions& options) {
        options.recipe.replicas = replicas;
        options.recipe.sharding.offload = offload;
        options.recipe.precision = halves;
        options.recipe.sharding.reshard_after_forward = ReshardAfterForward::never();
        options.recipe.sharding.prefetch_depth = 0;
      });
    }
  }
  // One unit is trained: when a micro-step begins, gradients of the two before may travel.
  add("one unit trained", [](MemoryOptions& options) {
    options.recipe.replicas = 2;
    options.recipe.sharding.offload = {.params = true, .grads = true};
    options.recipe.frozen = {""};
    options.recipe.trained = {"model.layers.0."};
  });
  return all;
}

}  // namespace

TEST_CASE("Long steps hold what a walk through all of their micro-steps holds") {
  const nn::TransformerConfig model = odd_model();
  for (Named& training : trainings()) {
    for (const int micro_steps : {1, 2, 3, 4, 5, 7, 8, 13, 21, 31, 32, 33, 64, 100, 255, 256}) {
      for (const int per_reduction : {1, 2}) {
        if (micro_steps % per_reduction != 0) continue;
        if (FSDP_SANITIZED && micro_steps > 40) continue;
        INFO(training.name << ", " << micro_steps << " micro-steps, " << per_reduction
                           << " per reduction");
        training.options.recipe.micro_steps = micro_steps;
        training.options.recipe.micro_steps_per_reduction = per_reduction;
        for (const MemorySpace space : {MemorySpace::device, MemorySpace::host}) {
          const Breakdown all = MemoryFormula(model, training.options, space).peak(2);
          CHECK(peak_of_training(model, training.options, space) == all);
          Books all_of_it(training.options), few_of_it(training.options);
          all_of_it.open_bytes(space);
          few_of_it.open_bytes(space);
          StepWalk whole(model, training.options, all_of_it);
          StepWalk shortened(model, training.options, few_of_it);
          shortened.set_recording(false);
          for (int step = 0; step < 2; ++step) {
            const StepMemory expected = whole.next_step();
            const StepMemory found = shortened.next_step();
            CHECK(found.step_peak == expected.step_peak);
            CHECK(found.at_rest == expected.at_rest);
            CHECK(found.micro_steps.back().forward_peak ==
                  expected.micro_steps.back().forward_peak);
          }
        }
      }
    }
  }
}

TEST_CASE("Of ranks that own different sums, each has the peak of a walk of its own") {
  const nn::TransformerConfig model = odd_model();
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    for (const optim::MixedPrecision& policy :
         {optim::MixedPrecision{}, {DType::bfloat16, DType::float32}}) {
      for (const int micro_steps : {5, 16, 33}) {
        MemoryOptions options;
        options.recipe = {.strategy = strategy, .ranks = 3, .micro_steps = micro_steps};
        options.recipe.precision = policy;
        options.recipe.zero.reduce_buffer_bytes = 3000;
        const std::vector<std::int64_t> bounds = bound_bytes_by_rank(model, options, 2);
        for (options.rank = 0; options.rank < 3; ++options.rank) {
          CAPTURE(static_cast<int>(strategy), micro_steps, options.rank);
          CHECK(bounds.at(static_cast<std::size_t>(options.rank)) ==
                MemoryFormula(model, options).peak(2).total());
        }
      }
    }
  }
}

TEST_CASE("Of 65,536 micro-steps, few are walked through") {
  const nn::TransformerConfig model = odd_model();
  for (Named& training : trainings()) {
    INFO(training.name);
    training.options.recipe.micro_steps = 1 << 16;
    training.options.recipe.micro_steps_per_reduction = 1;
    Books books(training.options);
    books.open_bytes();
    StepWalk walk(model, training.options, books);
    walk.set_recording(false);
    CHECK(walk.next_step().micro_steps.size() < 1'500);
  }
}
