// The instrument alone: states in order, spikes, and that it changes nothing.
#include "estimate/memory_instrument.h"

#include "autograd/functions.h"
#include "base/check.h"
#include "estimate/modes.h"

#include <map>

namespace fsdp::estimate {
namespace {

Variable loss_of(nn::TransformerLM& model) {
  const Tensor tokens = Tensor::from(std::vector<std::int32_t>{1, 2, 3}, {1, 3});
  return cross_entropy(model(Variable(tokens)), tokens);
}

}  // namespace

TEST_CASE("each unit has eight snapshots an iteration, in order", "[estimator]") {
  const Estimate made = estimated({"--model.preset=nano", "--parallel.ranks=2"});
  for (const IterationMemory& iteration : made.run.iterations) {
    std::map<std::string, std::vector<nn::CallState>> states;
    for (const auto& snapshot : iteration.as_formula.micro_steps.at(0).snapshots) {
      states[snapshot.module].push_back(snapshot.state);
    }
    CHECK(states.size() == 5);  // root, embedding, two blocks, head
    for (const auto& [unit, order] : states) {
      REQUIRE(order.size() == nn::kCallStates);
      for (std::size_t i = 0; i < order.size(); ++i) {
        CHECK(order[i] == static_cast<nn::CallState>(i));
      }
    }
  }
}

TEST_CASE("a spike between two states is in the peak of the active modules only", "[estimator]") {
  Context context({.seed = 1});
  const ContextScope scope(context);
  nn::TransformerLM model(nn::TransformerConfig::nano());
  constexpr std::int64_t kSpike = 1'000'000;
  nn::Module& active = *model.blocks()[1];
  active.register_forward_pre_hook([](nn::Module&) {
    Tensor::empty({kSpike}, DType::float32);  // gone at once
  });
  MemoryInstrument instrument(model, context.tracker());
  instrument.begin_iteration();
  instrument.begin_phase("forward", 0);
  loss_of(model);
  instrument.begin_phase("gradients");
  const IterationMemory iteration = instrument.end_iteration();
  for (const ModuleMemory& each : iteration.modules) {
    const bool is_active = each.name == "root" || each.name == active.path();
    CHECK((each.columns[kPeakForward].total() > 4 * kSpike) == is_active);
    for (std::size_t i = 0; i < nn::kCallStates; ++i) CHECK(each.columns[i].total() < 4 * kSpike);
  }
  CHECK(iteration.peak.total() > 4 * kSpike);
  CHECK(iteration.phases[0].module == active.path());
}

TEST_CASE("a spike in backward is in the backward peak of the active modules only", "[estimator]") {
  Context context({.seed = 1});
  const ContextScope scope(context);
  nn::TransformerLM model(nn::TransformerConfig::nano());
  constexpr std::int64_t kSpike = 1'000'000;
  nn::Module& active = *model.blocks()[1];
  active.register_full_backward_pre_hook([](nn::Module&) {
    Tensor::empty({kSpike}, DType::float32);  // gone at once
  });
  MemoryInstrument instrument(model, context.tracker());
  instrument.begin_iteration();
  instrument.begin_phase("forward", 0);
  const Variable loss = loss_of(model);
  instrument.begin_phase("backward", 0);
  loss.backward();
  instrument.begin_phase("gradients");
  const IterationMemory iteration = instrument.end_iteration();
  for (const ModuleMemory& each : iteration.modules) {
    const bool is_active = each.name == "root" || each.name == active.path();
    CHECK((each.columns[kPeakBackward].total() > 4 * kSpike) == is_active);
    CHECK(each.columns[kPeakForward].total() < 4 * kSpike);
  }
  CHECK(iteration.phases[1].module == active.path());
}

TEST_CASE("a removed instrument has changed nothing", "[estimator]") {
  struct Seen {
    double loss;
    Breakdown peak;
    Breakdown held;
    bool operator==(const Seen&) const = default;
  };
  const auto run = [](bool installs) {
    Context context({.seed = 1});
    const ContextScope scope(context);
    nn::TransformerLM model(nn::TransformerConfig::nano());
    loss_of(model).backward();
    context.tracker().reset_peak();
    if (installs) {
      MemoryInstrument instrument(model, context.tracker());
      CHECK_THROWS_AS(MemoryInstrument(model, context.tracker()), Error);
      instrument.begin_iteration();
      instrument.begin_phase("forward", 0);
      loss_of(model).backward();
    } else {
      loss_of(model).backward();
    }
    const Variable loss = loss_of(model);
    return Seen{loss.data().item(), context.tracker().peak(), context.tracker().current()};
  };
  CHECK(run(true) == run(false));
}

}  // namespace fsdp::estimate
