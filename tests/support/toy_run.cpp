#include "optim/local_gradients.h"
#include "support/toy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>

namespace fsdp::testing {

namespace {

constexpr double kLearningRate = 0.5;
constexpr std::uint64_t kSeed = 11;

std::shared_ptr<optim::Optimizer> make_optimizer() {
  return std::make_shared<optim::Sgd>(optim::Sgd::Options{});
}

/// The forwards and backwards of one step, up to finish_gradients().
void run_micro_steps(const ToyRun& run, Toy& model, optim::GradientEngine& engine, int step,
                     int rank, int world_size, const std::function<void()>& after_backward) {
  const int micro_steps = run.micro_batches / world_size;
  const optim::StepPlan plan{micro_steps, run.no_sync ? micro_steps : 1};
  if (run.order) model.order = run.order(step);
  engine.begin_step(plan);
  for (int m = 0; m < micro_steps; ++m) {
    const auto j = static_cast<int>(plan.micro_batch(m, rank, world_size));
    toy_loss(model, run.model.width, step, j).backward();
    engine.end_micro_step();
    after_backward();
  }
  engine.finish_gradients();
}

std::string prefix_of(int step) { return std::to_string(step) + "/"; }

/// The values of a vector that is spread over ranks: every rank puts its pieces into `values`.
void put_shard(Values& values, const FlatParameter& flat, const Tensor& shard,
               const std::string& prefix = "") {
  const std::vector<float> mine = shard.to_vector<float>();
  for (const ShardPiece& piece : flat.pieces_of(flat.rank())) {
    const Span& span = flat.spans()[piece.span];
    std::vector<float>& whole = values[prefix + span.path];
    whole.resize(static_cast<std::size_t>(span.numel));
    std::copy_n(mine.begin() + piece.shard_begin, piece.numel, whole.begin() + piece.param_begin);
  }
}

}  // namespace

ToyResult run_single(const ToyRun& run) {
  Context context({.seed = kSeed});
  const ContextScope scope(context);
  Toy model(run.model);
  optim::LocalGradients engine(model.variables());
  const auto optimizer = make_optimizer();
  ToyResult result;
  for (int step = 0; step < run.steps; ++step) {
    run_micro_steps(run, model, engine, step, 0, 1, [] {});
    for (const optim::Piece& piece : engine.pieces()) {
      result.gradients[prefix_of(step) + piece.key] = piece.grad.to_vector<float>();
    }
    optimizer->step(engine.pieces(), kLearningRate);
    engine.zero_grad();
  }
  for (const auto& [path, variable] : model.variables()) {
    result.parameters[path] = variable.data().to_vector<float>();
  }
  return result;
}

ToyResult run_sharded(const ToyRun& run, int world_size) {
  ToyResult result;
  std::mutex mutex;
  run_ranks({.world_size = world_size, .seed = kSeed}, [&](ProcessGroup& group) {
    ShardedToy toy(run.model, group, run.sharding);
    toy.sharded->attach_optimizer(make_optimizer);
    if (run.prepare) run.prepare(*toy.model, *toy.sharded);
    for (int step = 0; step < run.steps; ++step) {
      run_micro_steps(run, *toy.model, *toy.sharded, step, group.rank(), world_size, [&] {
        if (run.after_backward) run.after_backward(*toy.model, *toy.sharded);
      });
      for (const auto& unit : toy.sharded->units()) {
        for (const auto& flat : unit->flat_parameters()) {
          if (!flat->requires_grad()) continue;
          const std::lock_guard<std::mutex> lock(mutex);
          put_shard(result.gradients, *flat, flat->shard_grad(), prefix_of(step));
        }
      }
      toy.sharded->step(kLearningRate);
      toy.sharded->zero_grad();
    }
    for (const auto& unit : toy.sharded->units()) {
      for (const auto& flat : unit->flat_parameters()) {
        const std::lock_guard<std::mutex> lock(mutex);
        put_shard(result.parameters, *flat, flat->shard());
      }
    }
  });
  return result;
}

std::string difference(const Values& a, const Values& b) {
  for (const auto& [path, values] : b) {
    if (a.count(path) == 0) return path + " is missing";
  }
  for (const auto& [path, values] : a) {
    const auto found = b.find(path);
    if (found == b.end()) return path + " was not expected";
    if (found->second.size() != values.size()) return path + " has another size";
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float other = found->second[i];
      if (std::bit_cast<std::uint32_t>(values[i]) == std::bit_cast<std::uint32_t>(other)) continue;
      return fmt::format("{}[{}]: {:.9g} and {:.9g}", path, i, values[i], other);
    }
  }
  return {};
}

}  // namespace fsdp::testing
