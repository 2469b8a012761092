// Task 7: nano, trained alone and sharded over 1, 2 and 4 ranks.
#include "device/context.h"
#include "optim/local_gradients.h"
#include "show/show.h"
#include "task7_integration/integration.h"
#include "tensor/tree_sum.h"

#include <algorithm>
#include <mutex>
#include <span>

namespace fsdp::show {
namespace {

constexpr int kSteps = 20;
constexpr int kMicroBatches = 4;
constexpr double kMaxNorm = 1;

/// What a training leaves.
struct Trained {
  /// One per step and micro-batch.
  std::vector<float> losses = std::vector<float>(std::size_t{kSteps} * kMicroBatches);
  Values parameters;
  std::int64_t held_nbytes = 0;  // parameters and optimizer state, between two steps
  std::int64_t peak_nbytes = 0;
};

std::shared_ptr<optim::Optimizer> make_optimizer() {
  return std::make_shared<optim::AdamW>(optim::AdamW::Options{});
}

void micro_steps(nn::TransformerLM& model, optim::GradientEngine& engine, int step, int rank,
                 int ranks, std::vector<float>& losses) {
  const optim::StepPlan plan{.micro_steps = kMicroBatches / ranks};
  engine.begin_step(plan);
  for (int m = 0; m < plan.micro_steps; ++m) {
    const auto j = static_cast<int>(plan.micro_batch(m, rank, ranks));
    const Variable loss = loss_of(model, 0, j);
    const int at = step * kMicroBatches + j;
    losses[static_cast<std::size_t>(at)] = static_cast<float>(loss.data().item());
    loss.backward();
    engine.end_micro_step();
  }
  engine.finish_gradients();
}

void measure(Trained& trained) {
  const MemoryTracker& tracker = Context::current().tracker();
  trained.held_nbytes = tracker.current_total() - tracker.current()[MemoryKind::temp] -
                        tracker.current()[MemoryKind::buffer];
  trained.peak_nbytes = tracker.peak_total() - tracker.current()[MemoryKind::temp];
}

Trained train_alone() {
  Trained trained;
  alone([&] {
    nn::TransformerLM model(nano());
    optim::LocalGradients gradients(model.variables());
    const auto optimizer = make_optimizer();
    for (int step = 0; step < kSteps; ++step) {
      micro_steps(model, gradients, step, 0, 1, trained.losses);
      optim::clip_by_global_norm(gradients, nullptr, kMaxNorm);
      optimizer->step(gradients.pieces(), kLearningRate);
      gradients.zero_grad();
    }
    measure(trained);
    for (const auto& [path, variable] : model.variables()) {
      trained.parameters["param/" + path] = variable.data().to_vector<float>();
    }
  });
  return trained;
}

/// A training, and how many of its parameters have the bits of `expected`.
std::pair<Trained, std::int64_t> train_sharded(int ranks, const Trained& expected) {
  Trained trained;
  std::int64_t same = 0;
  std::mutex mutex;
  together(ranks, [&](ProcessGroup& group) {
    DeferredInit deferred;
    const auto model = deferred.build([] { return std::make_shared<nn::TransformerLM>(nano()); });
    FullyShardOptions options;
    options.deferred = &deferred;
    const auto sharded = fully_shard(*model, borrowed(group), options);
    sharded->attach_optimizer(make_optimizer);
    for (int step = 0; step < kSteps; ++step) {
      micro_steps(*model, *sharded, step, group.rank(), ranks, trained.losses);
      sharded->clip_grad_norm(kMaxNorm);
      sharded->step(kLearningRate);
      sharded->zero_grad();
    }
    const std::lock_guard<std::mutex> lock(mutex);
    if (group.rank() == 0) measure(trained);
    for (const io::StateSlice& slice : sharded->state_slices(false)) {
      const auto whole = expected.parameters.find(slice.name);
      if (whole != expected.parameters.end()) {
        same += same_bits(whole->second, slice.begin, slice.values);
      }
    }
  });
  return {std::move(trained), same};
}

float loss_at(const Trained& trained, int step) {
  const std::span<const float> all(trained.losses);
  return tree_sum(all.subspan(static_cast<std::size_t>(step) * kMicroBatches, kMicroBatches)) /
         kMicroBatches;
}

void print_row(Show& show, const std::string& name, const Trained& trained) {
  show.line("  {:16} {:>11.6f} {:>11.6f} {:>14} {:>12}", name, loss_at(trained, 0),
            loss_at(trained, kSteps - 1), grouped(trained.held_nbytes),
            grouped(trained.peak_nbytes));
}

void show_task(Show& show) {
  show.line("nano learns {} sequences by heart, in {} steps", kMicroBatches, kSteps);
  show.line("  {:16} {:>11} {:>11} {:>14} {:>12}", "", "first loss", "last loss", "held by a rank",
            "peak");
  const Trained one = train_alone();
  print_row(show, "one process", one);
  bool losses = true;
  bool parameters = true;
  for (const int ranks : {1, 2, 4}) {
    const auto [trained, same] = train_sharded(ranks, one);
    print_row(show, fmt::format("fully_shard, {}", ranks), trained);
    losses = losses && trained.losses == one.losses;
    parameters = parameters && same == nano().parameter_count();
  }
  show.line("Held between two steps: parameters and AdamW's state.");
  show.line("On one rank the peak is higher: the shard is then a second copy of everything.\n");
  show.check(losses, "every loss is the same, to the last bit");
  show.check(parameters, "and so is every parameter at the end");
  show.check(loss_at(one, kSteps - 1) < loss_at(one, 0) / 2, "the loss fell to less than half");
  show.line("\nNext: `make demo` trains a larger model, on this repository's text.");
}

}  // namespace
}  // namespace fsdp::show

int main() { return fsdp::show::run(7, fsdp::show::show_task); }
