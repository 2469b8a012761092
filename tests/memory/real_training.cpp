#include "memory/real_training.h"

#include "autograd/functions.h"
#include "comm/fake_group.h"
#include "comm/world.h"
#include "paper/wire_formula.h"
#include "strategies/trained_model.h"
#include "support/training.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace fsdp::testing {

using optim::Strategy;
using paper::MemoryFormula;
using paper::MemoryOptions;
using paper::MemorySnapshot;
using paper::MemorySpace;
using paper::MicroStepMemory;
using paper::StepMemory;

nn::TransformerConfig odd_model() {
  return {.vocab_size = 37,
          .hidden_size = 20,
          .num_hidden_layers = 3,
          .num_attention_heads = 10,
          .num_key_value_heads = 5,
          .intermediate_size = 51,
          .max_position_embeddings = 7};
}

MemoryCase odd_case(Strategy placement, int world_size) {
  MemoryCase test_case;
  test_case.model = odd_model();
  test_case.options.recipe.strategy = placement;
  test_case.options.recipe.ranks = world_size;
  test_case.options.batch = 2;
  test_case.options.recipe.micro_steps = 3;
  test_case.options.recipe.clip = 1;
  test_case.options.recipe.bucket_bytes = 4096;
  return test_case;
}

void train_only(MemoryCase& test_case, const std::function<bool(const std::string&)>& trains) {
  Context context({.device = kFake});
  const ContextScope scope(context);
  optim::Recipe& recipe = test_case.options.recipe;
  recipe.frozen = {""};
  for (const nn::NamedParameter& each : nn::TransformerLM(test_case.model).named_parameters()) {
    if (trains(each.path)) recipe.trained.push_back(each.path);
  }
}

void set_states(MemoryCase& test_case, int optimizer_states) {
  optim::OptimizerChoice& optimizer = test_case.options.recipe.optimizer;
  optimizer.name = optimizer_states == 2 ? "adamw" : "sgd";
  optimizer.options.momentum = optimizer_states == 1 ? 0.9 : 0;
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
        records_(test_case.records),
        is_host_(test_case.space == MemorySpace::host),
        limit_(test_case.limit),
        group_(group, [](ProcessGroup*) {}),
        trained_([this] { return std::make_shared<nn::TransformerLM>(model_config_); },
                 options_.recipe, group == nullptr ? nullptr : group_) {}

  MeasuredMemory run(int steps) {
    MeasuredMemory measured;
    Context::current().pool();  // the scratch is counted from the first use on
    measured.before = tracker().current();
    Context& context = Context::current();
    if (limit_ > 0) context.allocator(context.device())->set_limit(limit_);
    StateRecorder recorder(trained_.model(), tracker());
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

  StepMemory run_step(int step, StateRecorder& recorder) {
    StepMemory memory;
    const optim::StepPlan plan = options_.recipe.plan();
    trained_.begin_step(plan);
    for (int m = 0; m < plan.micro_steps; ++m) {
      const int rank = group_ == nullptr ? 0 : group_->rank();
      memory.micro_steps.push_back(
          micro_step(step, plan.micro_batch(m, rank, options_.recipe.ranks)));
      memory.micro_steps.back().snapshots = recorder.take();
    }
    tracker().reset_peak();
    trained_.gradients().finish_gradients();
    if (options_.recipe.clip > 0) trained_.clip(0.1);
    trained_.step(1e-3);
    trained_.gradients().zero_grad();
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
    const Variable loss = cross_entropy((trained_.model())(Variable(micro.tokens)), micro.targets);
    memory.forward_peak = tracker().peak();
    tracker().reset_peak();
    loss.backward(options_.recipe.plan().loss_scale);
    trained_.gradients().end_micro_step();
    memory.backward_peak = tracker().peak();
    return memory;
  }

  const nn::TransformerConfig& model_config_;
  const MemoryOptions& options_;
  bool records_;
  bool is_host_;
  std::size_t limit_;
  std::shared_ptr<ProcessGroup> group_;
  strategies::TrainedModel trained_;
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
  std::vector<MeasuredMemory> measured(static_cast<std::size_t>(options.recipe.ranks));
  if (test_case.is_fake) {
    Context context({.rank = options.rank,
                     .world_size = options.recipe.ranks,
                     .threads = options.threads,
                     .seed = 1,
                     .device = kFake,
                     .fake_granularity = test_case.granularity,
                     .cost_model = test_case.machine});
    ContextScope scope(context);
    ProcessGroup group = make_fake_group(options.rank, options.recipe.ranks);
    const bool is_alone = options.recipe.strategy == Strategy::single;
    return {RankMemory(test_case, is_alone ? nullptr : &group).run(test_case.steps)};
  }
  if (options.recipe.strategy == Strategy::single) {
    Context context({.threads = options.threads, .seed = 1});
    ContextScope scope(context);
    measured[0] = measure_rank(test_case, nullptr);
    return measured;
  }
  const RankOptions ranks{.world_size = options.recipe.ranks,
                          .threads_per_rank = options.threads,
                          .seed = 1,
                          .has_cpu_host = options.recipe.sharding.offload.is_on()};
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
  if (test_case.options.recipe.sharding.offload.is_on())
    spaces = {MemorySpace::device, MemorySpace::host};
  for (const MemorySpace space : spaces) {
    MemoryCase of_space = test_case;
    of_space.space = space;
    MemoryOptions options = test_case.options;
    const std::vector<MeasuredMemory> measured = measure(of_space);
    for (std::size_t rank = 0; rank < measured.size(); ++rank) {
      if (!test_case.is_fake) options.rank = static_cast<int>(rank);
      const MemoryFormula formula(test_case.model, options, space);
      const std::string what = difference(measured[rank], formula);
      if (!what.empty())
        return fmt::format("{}: rank {}, {}", describe(of_space), options.rank, what);
      const std::int64_t received = paper::wire_bytes(test_case.model, options).total();
      for (const std::int64_t each : measured[rank].received) {
        if (each == received) continue;
        return fmt::format("{}: rank {} received {} bytes in a step; the formula says {}",
                           describe(of_space), options.rank, each, received);
      }
    }
  }
  return {};
}

namespace {

std::string name_of(const ReshardAfterForward& reshard) {
  if (reshard.is_within()) return fmt::format("within {}", reshard.ranks);
  return reshard.kind == ReshardAfterForward::Kind::always ? "always" : "never";
}

}  // namespace

std::string describe(const MemoryCase& test_case) {
  const MemoryOptions& options = test_case.options;
  return fmt::format(
      "d {}, W {}, R {}, reshard {}, depth {}, limit {}, M {}, L {}, {} threads, {} and "
      "{}{}{}{}{}",
      test_case.model.hidden_size, options.recipe.ranks, options.recipe.replicas,
      name_of(options.recipe.sharding.reshard_after_forward),
      options.recipe.sharding.prefetch_depth, options.recipe.sharding.in_flight_limit,
      options.recipe.micro_steps, options.recipe.micro_steps_per_reduction, options.threads,
      name_of(options.recipe.precision.param_dtype_for(DType::float32)),
      name_of(options.recipe.precision.reduce_dtype_for(DType::float32)),
      test_case.model.tie_word_embeddings ? ", tied" : "",
      options.recipe.checkpointing == optim::Checkpointing::none     ? ""
      : options.recipe.checkpointing == optim::Checkpointing::around ? ", checkpointed around"
                                                                     : ", checkpointed inside",
      options.recipe.sharding.offload.grads       ? ", offload"
      : options.recipe.sharding.offload.params    ? ", offload of parameters"
      : options.recipe.sharding.offload.optimizer ? ", offload of the optimizer"
                                                  : "",
      test_case.space == MemorySpace::host ? ", on the host" : "");
}

}  // namespace fsdp::testing
