#include "memory/real_training.h"

#include "autograd/functions.h"
#include "comm/fake_group.h"
#include "comm/world.h"
#include "estimate/wire_formula.h"
#include "nn/lora.h"
#include "optim/local_gradients.h"
#include "support/training.h"
#include "task8_beyond/checkpoint.h"
#include "task8_beyond/mesh.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace fsdp::testing {

using estimate::MemoryFormula;
using estimate::MemoryOptions;
using estimate::MemorySnapshot;
using estimate::MemorySpace;
using estimate::MicroStepMemory;
using estimate::Placement;
using estimate::Reshard;
using estimate::StepMemory;

nn::TransformerConfig odd_model() {
  return {.vocab_size = 37,
          .hidden_size = 20,
          .num_hidden_layers = 3,
          .num_attention_heads = 10,
          .num_key_value_heads = 5,
          .intermediate_size = 51,
          .max_position_embeddings = 7};
}

MemoryCase odd_case(Placement placement, int world_size) {
  MemoryCase test_case;
  test_case.model = odd_model();
  test_case.options.placement = placement;
  test_case.options.world_size = world_size;
  test_case.options.batch = 2;
  test_case.options.micro_steps = 3;
  test_case.options.clips = true;
  test_case.options.bucket_bytes = 4096;
  return test_case;
}

nn::TransformerConfig llama2_7b() {
  return {.vocab_size = 32000,
          .hidden_size = 4096,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .intermediate_size = 11008,
          .max_position_embeddings = 4096};
}

StateRecorder::StateRecorder(nn::TransformerLM& model, const MemoryTracker& tracker)
    : tracker_(tracker) {
  names_[&model] = "root";
  names_[&model.embedding()] = "model.embed_tokens";
  for (const auto& block : model.blocks()) names_[block.get()] = block->path();
  names_[&model.head()] = "model.norm+lm_head";
}

void StateRecorder::on_state(nn::Module& module, nn::CallState state) {
  const auto name = names_.find(&module);
  if (name == names_.end()) return;
  snapshots_.push_back({name->second, state, tracker_.current()});
}

std::vector<MemorySnapshot> StateRecorder::take() { return std::exchange(snapshots_, {}); }

namespace {

ReshardAfterForward reshard_of(const MemoryOptions& options) {
  if (options.reshard == Reshard::within) return ReshardAfterForward::within(options.reshard_ranks);
  return options.reshard == Reshard::always ? ReshardAfterForward::always()
                                            : ReshardAfterForward::never();
}

/// What all collectives of a trace receive; copies between device and host have no ranks.
std::int64_t received_in(const Trace& trace) {
  std::int64_t nbytes = 0;
  for (const Event& event : trace.events()) {
    if (event.kind == EventKind::issue && event.ranks > 0) nbytes += event.nbytes;
  }
  return nbytes;
}

/// One rank's training; `group` is null for a single process.
class RankMemory {
 public:
  RankMemory(const MemoryCase& test_case, ProcessGroup* group)
      : model_config_(test_case.model),
        options_(test_case.options),
        make_other_optimizer_(test_case.optimizer),
        records_(test_case.records),
        is_host_(test_case.space == MemorySpace::host),
        limit_(test_case.limit),
        group_(group, [](ProcessGroup*) {}) {
    model_ = deferred_.build([this] { return make_model(); });
    if (options_.checkpointing == estimate::Checkpointing::inside) {
      for (const auto& block : model_->blocks()) checkpoint(*block);
    }
    if (options_.placement == Placement::sharded) {
      shard();
    } else {
      deferred_.materialize(*model_, Context::current().device());
      std::vector<std::pair<std::string, Variable>> parameters;
      for (const auto& each : model_->named_parameters()) {
        parameters.emplace_back(each.path, each.variable);
      }
      masters_ = optim::MasterWeights(parameters, options_.mixed_precision);
      model_->register_forward_pre_hook([this](nn::Module&) {
        if (std::exchange(masters_changed_, false)) masters_.refresh();
      });
      if (options_.placement == Placement::ddp) {
        const auto bucket_bytes = static_cast<std::size_t>(options_.bucket_bytes);
        engine_ = std::make_unique<parallel::DdpGradients>(parameters, group_, bucket_bytes,
                                                           masters_, options_.zero.reductions);
      } else if (options_.placement == Placement::single) {
        engine_ = std::make_unique<optim::LocalGradients>(parameters, masters_,
                                                          options_.zero.reductions.compression);
      } else {
        engine_ = make_zero(parameters);
      }
      optimizer_ = make_optimizer();
    }
  }

  MeasuredMemory run(int steps) {
    MeasuredMemory measured;
    Context::current().pool();  // the scratch is counted from the first use on
    measured.before = tracker().current();
    Context& context = Context::current();
    if (limit_ > 0) context.allocator(context.device())->set_limit(limit_);
    StateRecorder recorder(*model_, tracker());
    std::optional<nn::CallObserverScope> scope;
    if (records_) scope.emplace(recorder);
    Trace& trace = context.trace();
    trace.set_recording(true);
    for (int step = 0; step < steps; ++step) {
      trace.clear();
      const std::int64_t begin = context.now();
      measured.steps.push_back(run_step(step, recorder));
      measured.times.push_back(context.now() - begin);
      measured.received.push_back(received_in(trace));
    }
    return measured;
  }

 private:
  MemoryTracker& tracker() const {
    Context& context = Context::current();
    return is_host_ ? context.host_tracker() : context.tracker();
  }

  std::shared_ptr<nn::TransformerLM> make_model() const {
    auto model = std::make_shared<nn::TransformerLM>(model_config_);
    if (options_.lora_rank > 0) {
      nn::add_lora(*model, {.rank = options_.lora_rank,
                            .targets = options_.lora_targets,
                            .base_dtype = options_.mixed_precision.param_dtype});
    }
    if (options_.trains) {
      for (nn::NamedParameter& each : model->named_parameters())
        each.variable.set_requires_grad(options_.trains(each.path));
    }
    return model;
  }

  std::shared_ptr<optim::Optimizer> make_optimizer() const {
    if (make_other_optimizer_) return make_other_optimizer_();
    if (options_.optimizer_states == 2) {
      return std::make_shared<optim::AdamW>(optim::AdamW::Options{});
    }
    return std::make_shared<optim::Sgd>(
        optim::Sgd::Options{.momentum = options_.optimizer_states == 1 ? 0.9 : 0.0});
  }

  std::unique_ptr<optim::GradientEngine> make_zero(
      const std::vector<std::pair<std::string, Variable>>& parameters) {
    const auto bucket_bytes = static_cast<std::size_t>(options_.bucket_bytes);
    std::unique_ptr<parallel::ZeroGradients> made;
    if (options_.placement == Placement::zero1) {
      made = std::make_unique<parallel::Zero1Gradients>(parameters, group_, options_.zero, masters_,
                                                        bucket_bytes);
    } else {
      made =
          std::make_unique<parallel::Zero2Gradients>(parameters, group_, options_.zero, masters_);
    }
    zero_ = made.get();
    return made;
  }

  void shard() {
    FullyShardOptions sharding;
    sharding.reshard_after_forward = reshard_of(options_);
    sharding.prefetch_depth = options_.prefetch_depth;
    sharding.in_flight_limit = options_.in_flight_limit;
    sharding.ignored = options_.ignored;
    sharding.mixed_precision = options_.mixed_precision;
    sharding.offload = options_.offload;
    if (options_.decays) {
      sharding.decays = [this](const nn::NamedParameter& each) {
        return options_.decays(each.path);
      };
    }
    sharding.deferred = &deferred_;
    const auto group = options_.replicas == 1 ? group_ : make_mesh(*group_, options_.replicas);
    auto sharded = fully_shard(*model_, group, sharding);
    sharded->attach_optimizer([this] { return make_optimizer(); });
    if (options_.checkpointing == estimate::Checkpointing::around) {
      for (const auto& block : model_->blocks()) checkpoint_around(sharded->unit(block->path()));
    }
    sharded_ = sharded.get();
    engine_ = std::move(sharded);
  }

  StepMemory run_step(int step, StateRecorder& recorder) {
    StepMemory memory;
    const optim::StepPlan plan{options_.micro_steps, options_.micro_steps_per_reduction};
    engine_->begin_step(plan);
    for (int m = 0; m < plan.micro_steps; ++m) {
      const int rank = group_ == nullptr ? 0 : group_->rank();
      memory.micro_steps.push_back(
          micro_step(step, plan.micro_batch(m, rank, options_.world_size)));
      memory.micro_steps.back().snapshots = recorder.take();
    }
    tracker().reset_peak();
    engine_->finish_gradients();
    if (options_.clips) {
      sharded_ != nullptr ? sharded_->clip_grad_norm(0.1)
                          : optim::clip_by_global_norm(*engine_, group_.get(), 0.1);
    }
    masters_changed_ = true;
    sharded_ != nullptr ? sharded_->step(1e-3) : optimizer_->step(engine_->pieces(), 1e-3);
    if (zero_ != nullptr) zero_->broadcast_parameters();
    engine_->zero_grad();
    memory.step_peak = tracker().peak();
    memory.at_rest = tracker().current();
    return memory;
  }

  MicroStepMemory micro_step(int step, std::int64_t j) {
    MicroStepMemory memory;
    nn::TransformerConfig batch_config = model_config_;
    if (options_.length > 0) batch_config.max_position_embeddings = options_.length;
    const MicroBatch micro =
        make_micro_batch(batch_config, options_.batch, 1, step, static_cast<int>(j));
    tracker().reset_peak();
    const Variable loss = cross_entropy((*model_)(Variable(micro.tokens)), micro.targets);
    memory.forward_peak = tracker().peak();
    tracker().reset_peak();
    loss.backward();
    engine_->end_micro_step();
    memory.backward_peak = tracker().peak();
    return memory;
  }

  const nn::TransformerConfig& model_config_;
  const MemoryOptions& options_;
  const std::function<std::shared_ptr<optim::Optimizer>()>& make_other_optimizer_;
  bool records_;
  bool is_host_;
  std::size_t limit_;
  std::shared_ptr<ProcessGroup> group_;
  DeferredInit deferred_;
  std::shared_ptr<nn::TransformerLM> model_;
  optim::MasterWeights masters_;  // of single and ddp
  bool masters_changed_ = false;
  std::unique_ptr<optim::GradientEngine> engine_;
  ShardedModel* sharded_ = nullptr;
  parallel::ZeroGradients* zero_ = nullptr;
  std::shared_ptr<optim::Optimizer> optimizer_;
};

std::string compare(const Breakdown& measured, const Breakdown& expected) {
  if (measured == expected) return {};
  return fmt::format("measured {} = {}; the formula says {} = {}", measured.total(),
                     to_string(measured), expected.total(), to_string(expected));
}

std::string compare(const MicroStepMemory& measured, const MicroStepMemory& expected) {
  const auto& snapshots = measured.snapshots;
  for (std::size_t i = 0; i < std::min(snapshots.size(), expected.snapshots.size()); ++i) {
    const MemorySnapshot& now = snapshots[i];
    const MemorySnapshot& then = expected.snapshots[i];
    if (now.module != then.module || now.state != then.state) {
      return fmt::format("snapshot {} is {} of {}, not {} of {}", i, name_of(now.state), now.module,
                         name_of(then.state), then.module);
    }
    const std::string what = compare(now.bytes, then.bytes);
    if (!what.empty()) return fmt::format("{} of {}: {}", name_of(now.state), now.module, what);
  }
  if (snapshots.size() != expected.snapshots.size()) {
    return fmt::format("{} snapshots, not {}", snapshots.size(), expected.snapshots.size());
  }
  std::string what = compare(measured.forward_peak, expected.forward_peak);
  if (!what.empty()) return "peak of forward: " + what;
  what = compare(measured.backward_peak, expected.backward_peak);
  if (!what.empty()) return "peak of backward: " + what;
  return {};
}

std::string compare(const StepMemory& measured, const StepMemory& expected) {
  for (std::size_t m = 0; m < measured.micro_steps.size(); ++m) {
    const std::string what = compare(measured.micro_steps[m], expected.micro_steps.at(m));
    if (!what.empty()) return fmt::format("micro-step {}, {}", m, what);
  }
  std::string what = compare(measured.step_peak, expected.step_peak);
  if (!what.empty()) return "peak of the step: " + what;
  what = compare(measured.at_rest, expected.at_rest);
  if (!what.empty()) return "after the step: " + what;
  return {};
}

/// In the rank's context or, for a CUDA device, in one that is on it and has all of its scratch.
MeasuredMemory measure_rank(const MemoryCase& test_case, ProcessGroup* group) {
  if (test_case.device.type != DeviceType::cuda) {
    return RankMemory(test_case, group).run(test_case.steps);
  }
  Context::Options own = Context::current().options();
  own.device = test_case.device;
  own.segment_nbytes = std::size_t{64} << 10;
  own.workspace_nbytes = 1024;
  Context context(own);
  const ContextScope scope(context);
  {
    const Tensor one = Tensor::zeros({1, 1});
    ops::matmul(Tensor::zeros({1, 1}), one, ops::Transpose::no, one, ops::Transpose::no);
  }
  return RankMemory(test_case, group).run(test_case.steps);
}

}  // namespace

std::vector<MeasuredMemory> measure(const MemoryCase& test_case) {
  const MemoryOptions& options = test_case.options;
  std::vector<MeasuredMemory> measured(static_cast<std::size_t>(options.world_size));
  if (test_case.is_fake) {
    Context context({.rank = options.rank,
                     .world_size = options.world_size,
                     .threads = options.threads,
                     .seed = 1,
                     .device = kFake,
                     .fake_granularity = test_case.granularity,
                     .cost_model = test_case.machine});
    ContextScope scope(context);
    ProcessGroup group = make_fake_group(options.rank, options.world_size);
    const bool is_alone = options.placement == Placement::single;
    return {RankMemory(test_case, is_alone ? nullptr : &group).run(test_case.steps)};
  }
  if (options.placement == Placement::single) {
    Context context({.threads = options.threads, .seed = 1});
    ContextScope scope(context);
    measured[0] = measure_rank(test_case, nullptr);
    return measured;
  }
  const RankOptions ranks{.world_size = options.world_size,
                          .threads_per_rank = options.threads,
                          .seed = 1,
                          .has_cpu_host = options.offload.params};
  run_ranks(ranks, [&](ProcessGroup& group) {
    measured[static_cast<std::size_t>(group.rank())] = measure_rank(test_case, &group);
  });
  return measured;
}

std::string difference(const MeasuredMemory& measured, const MemoryFormula& formula) {
  const std::string what = compare(measured.before, formula.before_training());
  if (!what.empty()) return "before training: " + what;
  for (std::size_t step = 0; step < measured.steps.size(); ++step) {
    const std::string where = compare(measured.steps[step], formula.step(static_cast<int>(step)));
    if (!where.empty()) return fmt::format("step {}, {}", step, where);
  }
  return {};
}

std::string difference(const MeasuredMemory& measured, const MeasuredMemory& expected) {
  std::string what = compare(measured.before, expected.before);
  if (!what.empty()) return "before training: " + what;
  if (measured.steps.size() != expected.steps.size()) return "another number of steps";
  for (std::size_t step = 0; step < measured.steps.size(); ++step) {
    what = compare(measured.steps[step], expected.steps[step]);
    if (!what.empty()) return fmt::format("step {}, {}", step, what);
  }
  return {};
}

std::string difference(const MemoryCase& test_case) {
  std::vector<MemorySpace> spaces{test_case.space};
  if (test_case.options.offload.params) spaces = {MemorySpace::device, MemorySpace::host};
  for (const MemorySpace space : spaces) {
    MemoryCase of_space = test_case;
    of_space.space = space;
    MemoryOptions options = test_case.options;
    const std::vector<MeasuredMemory> measured = measure(of_space);
    for (std::size_t rank = 0; rank < measured.size(); ++rank) {
      options.rank = static_cast<int>(rank);
      const MemoryFormula formula(test_case.model, options, space);
      const std::string what = difference(measured[rank], formula);
      if (!what.empty()) return fmt::format("{}: rank {}, {}", describe(of_space), rank, what);
      const std::int64_t received = estimate::wire_bytes(test_case.model, options).total();
      for (const std::int64_t each : measured[rank].received) {
        if (each == received) continue;
        return fmt::format("{}: rank {} received {} bytes in a step; the formula says {}",
                           describe(of_space), rank, each, received);
      }
    }
  }
  return {};
}

namespace {

std::string name_of(const MemoryOptions& options) {
  if (options.reshard == Reshard::within) return fmt::format("within {}", options.reshard_ranks);
  return options.reshard == Reshard::always ? "always" : "never";
}

}  // namespace

std::string describe(const MemoryCase& test_case) {
  const MemoryOptions& options = test_case.options;
  return fmt::format(
      "d {}, W {}, R {}, reshard {}, depth {}, limit {}, M {}, L {}, {} threads, {} and "
      "{}{}{}{}{}",
      test_case.model.hidden_size, options.world_size, options.replicas, name_of(options),
      options.prefetch_depth, options.in_flight_limit, options.micro_steps,
      options.micro_steps_per_reduction, options.threads,
      name_of(options.mixed_precision.param_dtype_for(DType::float32)),
      name_of(options.mixed_precision.reduce_dtype_for(DType::float32)),
      test_case.model.tie_word_embeddings ? ", tied" : "",
      options.checkpointing == estimate::Checkpointing::none     ? ""
      : options.checkpointing == estimate::Checkpointing::inside ? ", checkpointed"
                                                                 : ", checkpointed around",
      options.offload.grads    ? ", offload"
      : options.offload.params ? ", offload of parameters"
                               : "",
      test_case.space == MemorySpace::host ? ", on the host" : "");
}

}  // namespace fsdp::testing
