#include "report/runs/short_run.h"

#include "base/check.h"
#include "base/philox.h"
#include "comm/fake_group.h"
#include "comm/thread_world.h"
#include "strategies/trained_model.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

namespace fsdp::report {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr double kLearningRate = 1e-3;

const char* written_name(Strategy strategy) {
  switch (strategy) {
    case Strategy::single:
      return "one process";
    case Strategy::ddp:
      return "DDP";
    case Strategy::zero1:
      return "ZeRO-1";
    case Strategy::zero2:
      return "ZeRO-2";
    case Strategy::fsdp:
      break;
  }
  return "FSDP";
}

std::string title_of(const ShortRun& run) {
  const optim::Recipe& recipe = run.recipe;
  std::string text = fmt::format("{} over {} rank{}, {}", run.model_name, recipe.ranks,
                                 recipe.ranks == 1 ? "" : "s", written_name(recipe.strategy));
  const DType param = recipe.precision.param_dtype_for(DType::float32);
  const DType reduce = recipe.precision.reduce_dtype_for(DType::float32);
  if (param != DType::float32 || reduce != DType::float32) {
    text += fmt::format(", in {}, gradients in {}", name_of(param), name_of(reduce));
  }
  if (recipe.checkpoints_blocks()) text += ", blocks checkpointed";
  if (recipe.sharding.offload.optimizer) {
    text += recipe.sharding.offload.grads ? ", optimizer and gradients offloaded"
                                          : ", optimizer offloaded";
  }
  if (recipe.strategy != Strategy::fsdp) return text;
  if (recipe.replicas > 1) {
    const int shards = recipe.shards();
    text +=
        fmt::format(", {} replicas of {} shard{}", recipe.replicas, shards, shards == 1 ? "" : "s");
  }
  using Kind = ReshardAfterForward::Kind;
  const ReshardAfterForward& reshard = recipe.sharding.reshard_after_forward;
  text += reshard.kind == Kind::always  ? ", resharded after forward"
          : reshard.kind == Kind::never ? ", kept after forward"
                                        : fmt::format(", kept within {} ranks", reshard.ranks);
  text += recipe.sharding.prefetch_depth == 0
              ? ", no prefetch"
              : fmt::format(", prefetch depth {}", recipe.sharding.prefetch_depth);
  if (recipe.sharding.offload.params) {
    text += recipe.sharding.offload.grads ? ", offloaded" : ", parameters offloaded";
  }
  return text;
}

/// One rank's training.
class RankRun {
 public:
  RankRun(const ShortRun& run, std::shared_ptr<ProcessGroup> group)
      : run_(run), trained_([&run] { return model_of(run); }, run.recipe, std::move(group)) {
    if (run.recipe.strategy != Strategy::fsdp) name_units(trained_.model());
    if (run.after_sharding) kept_ = run.after_sharding(trained_);
  }

  RankRecord record() {
    for (int step = 0; step < run_.steps_before; ++step) train(step);
    if (trained_.group() != nullptr) trained_.group()->barrier({}).wait();
    RankRecorder recorder(Context::current());
    for (int step = 0; step < run_.steps; ++step) train(run_.steps_before + step);
    RankRecord record = recorder.finish();
    if (run_.at_end) run_.at_end(trained_);
    return record;
  }

 private:
  static std::shared_ptr<nn::TransformerLM> model_of(const ShortRun& run) {
    auto model = std::make_shared<nn::TransformerLM>(run.model);
    if (run.before_sharding) run.before_sharding(*model);
    return model;
  }

  void train(int step) {
    const optim::StepPlan plan = run_.recipe.plan();
    const auto next = [&](int m) {
      const auto j = plan.micro_batch(m, Context::current().rank(), run_.recipe.ranks);
      strategies::MicroBatch micro;
      micro.targets = tokens(step, j, 1);
      micro.tokens = tokens(step, j, 0);
      return micro;
    };
    trained_.make_gradients(plan, next, [](const Tensor&) {});
    trained_.step(kLearningRate);
    trained_.gradients().zero_grad();
  }

  /// Micro-batch j of a step: any tokens will do; the targets are the same ones, one place on.
  Tensor tokens(int step, std::int64_t j, std::int64_t shift) const {
    const Shape shape{run_.batch, run_.model.max_position_embeddings};
    if (!Context::current().device().has_data()) return Tensor::empty(shape, DType::int32);
    std::vector<std::int32_t> values;
    const auto stream = (static_cast<std::uint64_t>(step) << 40) +
                        (static_cast<std::uint64_t>(j) << 24) + static_cast<std::uint64_t>(shift);
    for (std::int64_t i = 0; i < numel_of(shape); ++i) {
      const auto word = random_word(kSeed, stream + static_cast<std::uint64_t>(i));
      const auto vocabulary = static_cast<std::uint32_t>(run_.model.vocab_size);
      values.push_back(static_cast<std::int32_t>(word % vocabulary));
    }
    return Tensor::from(values, shape);
  }

  const ShortRun& run_;
  strategies::TrainedModel trained_;
  std::shared_ptr<void> kept_;
};

RunRecord empty_record(const ShortRun& run, int recorded) {
  RunRecord record;
  record.title = title_of(run);
  record.world_size = run.recipe.ranks;
  record.ranks.resize(static_cast<std::size_t>(recorded));
  return record;
}

}  // namespace

Traffic traffic_of(const RankRecord& rank) {
  Traffic traffic;
  for (const Event& event : rank.events) {
    if (event.kind != EventKind::issue || event.ranks < 2) continue;
    traffic.nbytes += event.nbytes;
    ++traffic.collectives;
  }
  return traffic;
}

void name_units(nn::TransformerLM& model) {
  for (nn::Module* module : default_wrap_policy(model)) {
    module->set_unit_name(module->path().empty() ? nn::kHeadName : module->path());
  }
}

RunRecord record_fake(const ShortRun& run, const CostModel& machine, int recorded) {
  FSDP_CHECK(recorded >= 1 && recorded <= run.recipe.ranks, "{} of {} ranks cannot be recorded",
             recorded, run.recipe.ranks);
  RunRecord record = empty_record(run, recorded);
  record.cost_model = machine;
  for (int rank = 0; rank < recorded; ++rank) {
    Context context({.rank = rank,
                     .world_size = run.recipe.ranks,
                     .seed = kSeed,
                     .device = kFake,
                     .cost_model = machine});
    const ContextScope scope(context);
    const auto group = std::make_shared<ProcessGroup>(make_fake_backend(rank, run.recipe.ranks));
    record.ranks[static_cast<std::size_t>(rank)] = RankRun(run, group).record();
  }
  return record;
}

RunRecord record_threads(const ShortRun& run) {
  RunRecord record = empty_record(run, run.recipe.ranks);
  threads::run_ranks({.world_size = run.recipe.ranks, .seed = kSeed}, [&](ProcessGroup& group) {
    const bool is_single = run.recipe.strategy == Strategy::single;
    RankRun of_rank(run, is_single ? nullptr : borrowed(group));
    record.ranks[static_cast<std::size_t>(group.rank())] = of_rank.record();
  });
  return record;
}

}  // namespace fsdp::report
