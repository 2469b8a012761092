#include "report/runs/short_run.h"

#include "autograd/functions.h"
#include "base/check.h"
#include "base/philox.h"
#include "comm/fake_group.h"
#include "comm/thread_world.h"
#include "optim/master_weights.h"
#include "optim/optimizer.h"
#include "parallel/ddp.h"
#include "task7_integration/integration.h"
#include "task8_beyond/checkpoint.h"
#include "task8_beyond/mesh.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace fsdp::report {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr double kLearningRate = 1e-3;

const char* name_of(Strategy strategy) {
  switch (strategy) {
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
  std::string text = fmt::format("{} over {} rank{}, {}", run.model_name, run.ranks,
                                 run.ranks == 1 ? "" : "s", name_of(run.strategy));
  const DType param = run.mixed_precision.param_dtype_for(DType::float32);
  const DType reduce = run.mixed_precision.reduce_dtype_for(DType::float32);
  if (param != DType::float32 || reduce != DType::float32) {
    text += fmt::format(", in {}, gradients in {}", name_of(param), name_of(reduce));
  }
  if (run.checkpoints_blocks) text += ", blocks checkpointed";
  if (run.strategy != Strategy::fsdp) return text;
  if (run.replicas > 1) {
    const int shards = run.ranks / run.replicas;
    text +=
        fmt::format(", {} replicas of {} shard{}", run.replicas, shards, shards == 1 ? "" : "s");
  }
  using Kind = ReshardAfterForward::Kind;
  text += run.reshard.kind == Kind::always ? ", resharded after forward"
          : run.reshard.kind == Kind::never
              ? ", kept after forward"
              : fmt::format(", kept within {} ranks", run.reshard.ranks);
  text += run.prefetch_depth == 0 ? ", no prefetch"
                                  : fmt::format(", prefetch depth {}", run.prefetch_depth);
  if (run.offload.params) {
    text += run.offload.grads ? ", offloaded" : ", parameters offloaded";
  }
  return text;
}

/// One rank's training.
class RankRun {
 public:
  RankRun(const ShortRun& run, std::shared_ptr<ProcessGroup> group)
      : run_(run),
        group_(std::move(group)),
        model_(std::make_shared<nn::TransformerLM>(run.model)) {
    const auto make_optimizer = [&]() -> std::shared_ptr<optim::Optimizer> {
      if (run_.optimizer == StepsWith::sgd)
        return std::make_shared<optim::Sgd>(optim::Sgd::Options{});
      return std::make_shared<optim::AdamW>(optim::AdamW::Options{});
    };
    if (run_.checkpoints_blocks) {
      for (const auto& block : model_->blocks()) checkpoint(*block);
    }
    if (run_.strategy == Strategy::fsdp) {
      FullyShardOptions options;
      options.prefetch_depth = run_.prefetch_depth;
      options.reshard_after_forward = run_.reshard;
      options.mixed_precision = run_.mixed_precision;
      options.offload = run_.offload;
      auto sharded = fully_shard(
          *model_, run_.replicas == 1 ? group_ : make_mesh(*group_, run_.replicas), options);
      sharded->attach_optimizer(make_optimizer);
      sharded_ = sharded.get();
      engine_ = std::move(sharded);
    } else {
      masters_ = optim::MasterWeights(model_->variables(), run_.mixed_precision);
      model_->register_forward_pre_hook([this](nn::Module&) { masters_.refresh(); });
      engine_ = make_whole_engine();
      optimizer_ = make_optimizer();
      name_units(*model_);
    }
  }

  RankRecord record() {
    for (int step = 0; step < run_.steps_before; ++step) train(step);
    group_->barrier({}).wait();
    RankRecorder recorder(Context::current());
    for (int step = 0; step < run_.steps; ++step) train(run_.steps_before + step);
    return recorder.finish();
  }

 private:
  std::unique_ptr<optim::GradientEngine> make_whole_engine() {
    const auto variables = model_->variables();
    std::unique_ptr<parallel::ZeroGradients> zero;
    if (run_.strategy == Strategy::ddp) {
      return std::make_unique<parallel::DdpGradients>(variables, group_, run_.bucket_bytes,
                                                      masters_, run_.zero.reductions);
    }
    if (run_.strategy == Strategy::zero1) {
      zero = std::make_unique<parallel::Zero1Gradients>(variables, group_, run_.zero, masters_,
                                                        run_.bucket_bytes);
    } else {
      zero = std::make_unique<parallel::Zero2Gradients>(variables, group_, run_.zero, masters_);
    }
    zero_ = zero.get();
    return zero;
  }

  void train(int step) {
    const optim::StepPlan plan{run_.micro_steps, 1};
    engine_->begin_step(plan);
    for (int m = 0; m < run_.micro_steps; ++m) {
      const auto j = plan.micro_batch(m, group_->rank(), group_->size());
      // In this order: compilers differ in which argument of a call they evaluate first, and the
      // picture of the memory would differ with them.
      const Tensor targets = tokens(step, j, 1);
      cross_entropy((*model_)(Variable(tokens(step, j, 0))), targets).backward();
      engine_->end_micro_step();
    }
    engine_->finish_gradients();
    if (sharded_ != nullptr) {
      sharded_->step(kLearningRate);
    } else {
      optimizer_->step(engine_->pieces(), kLearningRate);
      if (zero_ != nullptr) zero_->broadcast_parameters();
    }
    engine_->zero_grad();
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
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<nn::TransformerLM> model_;
  optim::MasterWeights masters_;  // but fsdp
  std::unique_ptr<optim::GradientEngine> engine_;
  ShardedModel* sharded_ = nullptr;              // engine_, if it is one
  parallel::ZeroGradients* zero_ = nullptr;      // likewise
  std::shared_ptr<optim::Optimizer> optimizer_;  // otherwise
};

RunRecord empty_record(const ShortRun& run, int recorded) {
  RunRecord record;
  record.title = title_of(run);
  record.world_size = run.ranks;
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
    module->set_unit_name(module->path().empty() ? "model.norm+lm_head" : module->path());
  }
}

RunRecord record_fake(const ShortRun& run, const CostModel& machine, int recorded) {
  FSDP_CHECK(recorded >= 1 && recorded <= run.ranks, "{} of {} ranks cannot be recorded", recorded,
             run.ranks);
  RunRecord record = empty_record(run, recorded);
  record.cost_model = machine;
  for (int rank = 0; rank < recorded; ++rank) {
    Context context({.rank = rank,
                     .world_size = run.ranks,
                     .seed = kSeed,
                     .device = kFake,
                     .cost_model = machine});
    const ContextScope scope(context);
    const auto group = std::make_shared<ProcessGroup>(make_fake_backend(rank, run.ranks));
    record.ranks[static_cast<std::size_t>(rank)] = RankRun(run, group).record();
  }
  return record;
}

RunRecord record_threads(const ShortRun& run) {
  RunRecord record = empty_record(run, run.ranks);
  threads::run_ranks({.world_size = run.ranks, .seed = kSeed}, [&](ProcessGroup& group) {
    const std::shared_ptr<ProcessGroup> borrowed(&group, [](ProcessGroup*) {});
    record.ranks[static_cast<std::size_t>(group.rank())] = RankRun(run, borrowed).record();
  });
  return record;
}

}  // namespace fsdp::report
