#include "estimate/estimate_run.h"

#include "base/check.h"
#include "comm/fake_group.h"
#include "estimate/memory_instrument.h"
#include "plan/machine.h"
#include "program/memory.h"
#include "strategies/trained_model.h"
#include "train/memory_check.h"
#include "train/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace fsdp::estimate {
namespace {

/// One rank's two iterations. Ranks whose memory is not reported only take part.
class RankEstimate {
 public:
  RankEstimate(const EstimatorConfig& config, std::shared_ptr<ProcessGroup> group, EstimateRun& run)
      : config_(config), group_(std::move(group)), run_(run), plan_(config.train.recipe.plan()) {
    allocator().set_limit(config.limit);
  }

  /// @throws Error if the limit is exceeded; what was seen until then is in the run.
  void measure() {
    add_stage("group");
    FSDP_CHECK(tracker().current_total() == 0, "{} bytes are held before there is a model",
               tracker().current_total());
    if (!can_make_model()) return;
    add_stage("model");
    {
      MemoryInstrument instrument(trained_->model(), tracker());
      report::RankRecorder recorder(Context::current());
      began_ = Context::current().now();
      add_stage("tracker");
      try {
        for (int i = 0; i < kIterations; ++i) iterate(i, &instrument);
      } catch (const Error& error) {
        if (allocator().refusals() == 0) throw;
        run_.out_of_memory = error.what();
        run_.iterations.push_back(instrument.end_iteration());
      }
      run_.record.ranks.push_back(recorder.finish());
    }
    count(scratch());
  }

  void take_part() {
    make_model();
    for (int i = 0; i < kIterations; ++i) iterate(i, nullptr);
  }

 private:
  static MemoryTracker& tracker() { return Context::current().tracker(); }
  static Allocator& allocator() {
    Context& context = Context::current();
    return *context.allocator(context.device());
  }

  // Of all kernels of this rank, allocated once, beside the allocator; a card's are in it.
  static std::int64_t scratch() {
    if (Context::current().device().type == DeviceType::cuda) return 0;
    return static_cast<std::int64_t>(kScratchBytes) * Context::current().options().threads;
  }

  void add_stage(const char* name) {
    run_.stages.push_back({name, tracker().current_total(), tracker().peak_total()});
  }

  void make_model() {
    trained_ = strategies::make_trained_model(config_.train, group_);
    const std::int64_t held = tracker().current_total();
    run_.parameters = trained_->model().parameter_count();
    // Built on meta: nothing but the shards was ever allocated.
    FSDP_CHECK(
        config_.train.recipe.strategy != optim::Strategy::fsdp || tracker().peak_total() == held,
        "building the model took {} bytes where its shards have {}", tracker().peak_total(), held);
    Context::current().pool();  // counted from the first kernel on: here, so that both modes agree
  }

  /// If memory runs out meanwhile, the run has one iteration, whose only phase is this.
  bool can_make_model() {
    report::RankRecorder recorder(Context::current());
    try {
      make_model();
      return true;
    } catch (const Error& error) {
      if (allocator().refusals() == 0) throw;
      run_.out_of_memory = error.what();
    }
    IterationMemory ended;
    ended.peak = ended.highest = tracker().peak();
    ended.after = tracker().current();
    ended.phases.push_back({.name = "model", .peak = ended.peak, .module = {}});
    run_.iterations.push_back(ended);
    run_.record.ranks.push_back(recorder.finish());
    run_.parameters = config_.train.model.parameter_count() + config_.train.lora_parameters();
    const bool has_kernels = ended.peak[MemoryKind::temp] >= scratch();
    count(has_kernels ? scratch() : 0);
    return false;
  }

  strategies::MicroBatch micro_batch(int iteration, int m) {
    const Shape shape{config_.train.training.local_batch_size, config_.train.sequence_length()};
    const auto tokens = [&](std::int64_t shift) {
      if (!Context::current().device().has_data()) return Tensor::empty(shape, DType::int32);
      std::vector<std::int32_t> values;
      const std::int64_t first =
          std::int64_t{7919} * (1 + iteration + 31 * m + Context::current().rank());
      for (std::int64_t i = 0; i < numel_of(shape); ++i) {
        values.push_back(
            static_cast<std::int32_t>((first + 17 * (i + shift)) % config_.train.model.vocab_size));
      }
      return Tensor::from(values, shape);
    };
    strategies::MicroBatch made;
    made.tokens = tokens(0);
    made.targets = tokens(1);
    return made;
  }

  void iterate(int iteration, MemoryInstrument* instrument) {
    const auto phase = [&](const char* name, int m = -1) {
      if (instrument != nullptr) instrument->begin_phase(name, m);
    };
    if (instrument != nullptr) {
      instrument->begin_iteration();
      Context::current().host_tracker().reset_peak();
    }
    phase("inputs");
    trained_->make_gradients(
        plan_, [&](int m) { return micro_batch(iteration, m); }, [](const Tensor&) {},
        {.before_forward =
             [&](int m) {
               if (instrument != nullptr && iteration == 0 && m == 0) add_stage("inputs");
               phase("forward", m);
             },
         .before_backward = [&](int m) { phase("backward", m); },
         .before_finish = [&] { phase("gradients"); }});
    if (config_.train.recipe.clip > 0) {
      phase("clip");
      trained_->clip(config_.train.recipe.clip);
    }
    phase("optimizer");
    const double learning_rate = config_.train.schedule.at(iteration);
    trained_->step(learning_rate);
    trained_->gradients().zero_grad();
    if (instrument == nullptr) return;
    Context& context = Context::current();
    if (context.clock() != nullptr) run_.ended.push_back(context.now() - began_);
    IterationMemory memory = instrument->end_iteration();
    memory.host_peak = Context::current().host_tracker().peak();
    memory.host_after = Context::current().host_tracker().current();
    memory.learning_rate = learning_rate;
    run_.iterations.push_back(std::move(memory));
  }

  void count(std::int64_t scratch_bytes) {
    run_.allocator = {
        .peak_active = static_cast<std::int64_t>(allocator().most_in_use()) + scratch_bytes,
        .peak_reserved = static_cast<std::int64_t>(allocator().reserved()) + scratch_bytes,
        .retries = allocator().refusals(),
        .scratch = scratch_bytes};
  }

  const EstimatorConfig& config_;
  std::shared_ptr<ProcessGroup> group_;
  EstimateRun& run_;
  optim::StepPlan plan_;
  std::unique_ptr<strategies::TrainedModel> trained_;
  std::int64_t began_ = 0;  // of the record
};

void run_fake(const EstimatorConfig& config, EstimateRun& run) {
  const config::TrainConfig& training = config.train;
  Context context({.rank = config.rank,
                   .world_size = training.recipe.ranks,
                   .threads = static_cast<int>(training.parallel.threads_per_rank),
                   .seed = static_cast<std::uint64_t>(training.training.seed),
                   .device = kFake,
                   .fake_granularity = config.granularity,
                   .cost_model = machine()});
  const ContextScope scope(context);
  std::shared_ptr<ProcessGroup> group;
  if (training.recipe.strategy != optim::Strategy::single) {
    group = std::make_shared<ProcessGroup>(make_fake_backend(config.rank, training.recipe.ranks));
  }
  run.record.cost_model = machine();
  RankEstimate(config, group, run).measure();
}

void run_real(const EstimatorConfig& config, EstimateRun& run) {
  const std::string key = "memory_estimation.disable_fake_mode";
  if (config.granularity != 1) {
    throw InputError(key +
                     ": real memory is rounded as its own allocator does; leave --round-to out");
  }
  const optim::Offload& offload = config.train.recipe.sharding.offload;
  if (offload.is_on() && config.train.training.device == "cpu") {
    throw InputError(
        fmt::format("{}: ranks of this machine have one memory, which is device and "
                    "host; leave parallel.offload_{} out, set training.device to cuda, or estimate "
                    "in fake mode",
                    key, offload.params ? "params" : "optimizer"));
  }
  if (config.train.recipe.ranks > 256) {
    throw InputError(
        fmt::format("{}: {} ranks as threads of this machine are too many; use at "
                    "most 256, or fake mode",
                    key, config.train.recipe.ranks));
  }
  train::check_memory(config.train, train::free_memory(config.train));
  const auto others = [&](const train::Rank& rank) {
    EstimateRun ignored;
    RankEstimate(config, rank.group, ignored).take_part();
  };
  try {
    train::run_on_ranks(config.train, false, [&](const train::Rank& rank) {
      if (rank.number() != config.rank) return others(rank);
      RankEstimate(config, rank.group, run).measure();
      // The others wait for this one.
      if (!run.out_of_memory.empty()) throw Error(run.out_of_memory);
    });
  } catch (const Error&) {
    if (run.out_of_memory.empty()) throw;
  }
}

std::string title_of(const EstimatorConfig& config) {
  const config::TrainConfig& training = config.train;
  return fmt::format("{} over {} rank{}, {}, {}", training.model_name(), training.recipe.ranks,
                     training.recipe.ranks == 1 ? "" : "s", name_of(training.recipe.strategy),
                     config.is_real ? "real memory" : "estimate");
}

}  // namespace

CostModel machine() {
  plan::MachineText text;
  text.bus = "50GB/s";
  return text.cost_model();
}

int EstimateRun::peak_iteration() const {
  const auto highest = std::ranges::max_element(
      iterations, {}, [](const IterationMemory& each) { return each.peak.total(); });
  return static_cast<int>(highest - iterations.begin());
}

std::int64_t EstimateRun::tracker_max() const {
  return iterations.at(static_cast<std::size_t>(peak_iteration())).peak.total();
}

double EstimateRun::tracker_accuracy() const {
  if (tracker_max() == allocator.peak_active) return 1;
  return static_cast<double>(tracker_max()) / static_cast<double>(allocator.peak_active);
}

EstimateRun run_estimate(const EstimatorConfig& config) {
  EstimatorConfig without_weights = config;
  without_weights.train.from.clear();  // random ones do as well, and there may be none to read
  EstimateRun run;
  run.record.title = title_of(config);
  run.record.world_size = config.train.recipe.ranks;
  if (config.framework != paper::Framework::unshard) {
    run_on_paper(without_weights, run);
  } else {
    config.is_real ? run_real(without_weights, run) : run_fake(without_weights, run);
  }
  return run;
}

}  // namespace fsdp::estimate
