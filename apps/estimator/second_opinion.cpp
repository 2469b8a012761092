#include "estimator/second_opinion.h"

#include "base/check.h"
#include "estimate/memory_formula.h"
#include "train/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace fsdp::estimator {
namespace {

using estimate::MemoryFormula;
using estimate::MemorySnapshot;
using estimate::MemorySpace;
using estimate::MicroStepMemory;
using estimate::StepMemory;

estimate::MemoryOptions options_of(const EstimatorConfig& config) {
  estimate::MemoryOptions options = train::memory_options(config.train);
  options.rank = config.rank;
  return options;
}

/// Compares and remembers the first difference.
class Comparison {
 public:
  explicit Comparison(SecondOpinion& opinion) : opinion_(opinion) {}

  void compare(const std::string& where, const Breakdown& measured, const Breakdown& expected) {
    ++opinion_.compared;
    if (measured == expected) return;
    note(fmt::format("{}: estimated {} = {}; the formula says {} = {}", where, measured.total(),
                     to_string(measured), expected.total(), to_string(expected)));
  }

  void compare(const std::string& where, const MicroStepMemory& measured,
               const MicroStepMemory& expected) {
    const std::size_t count = std::min(measured.snapshots.size(), expected.snapshots.size());
    if (measured.snapshots.size() != expected.snapshots.size()) {
      note(fmt::format("{}: {} snapshots, but the formula has {}", where, measured.snapshots.size(),
                       expected.snapshots.size()));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const MemorySnapshot& now = measured.snapshots[i];
      const MemorySnapshot& then = expected.snapshots[i];
      const std::string name = fmt::format("{}, {} of {}", where, name_of(now.state), now.module);
      if (now.module != then.module || now.state != then.state) {
        return note(
            fmt::format("{}: the formula has {} of {}", name, name_of(then.state), then.module));
      }
      compare(name, now.bytes, then.bytes);
    }
    compare(where + ", peak of forward", measured.forward_peak, expected.forward_peak);
    compare(where + ", peak of backward", measured.backward_peak, expected.backward_peak);
  }

  void compare(const std::string& where, const StepMemory& measured, const StepMemory& expected) {
    if (measured.micro_steps.size() != expected.micro_steps.size()) {
      return note(fmt::format("{}: {} micro-steps, but the formula has {}", where,
                              measured.micro_steps.size(), expected.micro_steps.size()));
    }
    for (std::size_t m = 0; m < measured.micro_steps.size(); ++m) {
      compare(fmt::format("{}, micro-step {}", where, m), measured.micro_steps[m],
              expected.micro_steps[m]);
    }
    compare(where + ", peak of clip and optimizer", measured.step_peak, expected.step_peak);
    compare(where + ", afterwards", measured.at_rest, expected.at_rest);
  }

  void note(std::string what) {
    if (opinion_.difference.empty()) opinion_.difference = std::move(what);
  }

 private:
  SecondOpinion& opinion_;
};

std::int64_t peak_of(const EstimatorConfig& config) {
  return MemoryFormula(config.train.model, options_of(config)).peak(kIterations).total();
}

}  // namespace

SecondOpinion second_opinion(const EstimatorConfig& config, const EstimateRun& run) {
  SecondOpinion opinion;
  const estimate::MemoryOptions options = options_of(config);
  const MemoryFormula formula(config.train.model, options);
  opinion.is_comparable = config.granularity == 1 && run.out_of_memory.empty();
  Comparison comparison(opinion);
  for (int i = 0; i < kIterations; ++i) {
    const StepMemory expected = formula.step(i);
    opinion.peaks.push_back(expected.peak());
    if (!opinion.is_comparable) continue;
    const IterationMemory& measured = run.iterations.at(static_cast<std::size_t>(i));
    comparison.compare(fmt::format("iteration {}", i), measured.as_formula, expected);
    if (measured.peak.total() != expected.peak().total()) {
      comparison.note(fmt::format("iteration {}: the peak is {}, but the formula says {}", i,
                                  measured.peak.total(), expected.peak().total()));
    }
  }
  if (!options.offload.params) return opinion;
  const MemoryFormula host(config.train.model, options, MemorySpace::host);
  for (int i = 0; i < kIterations; ++i) {
    const StepMemory expected = host.step(i);
    opinion.host_peaks.push_back(expected.peak());
    if (!opinion.is_comparable) continue;
    const IterationMemory& measured = run.iterations.at(static_cast<std::size_t>(i));
    comparison.compare(fmt::format("iteration {}, host", i), measured.host_peak, expected.peak());
    comparison.compare(fmt::format("iteration {}, host, afterwards", i), measured.host_after,
                       expected.at_rest);
  }
  return opinion;
}

std::vector<Saving> savings_of(const EstimatorConfig& config) {
  using train::TrainConfig;
  std::vector<Saving> savings;
  const std::int64_t now = peak_of(config);
  const auto consider = [&](std::string change, std::string meaning,
                            const std::function<void(TrainConfig&)>& apply) {
    EstimatorConfig changed = config;
    apply(changed.train);
    const std::int64_t peak = peak_of(changed);
    if (peak < now) savings.push_back({std::move(change), std::move(meaning), peak, now - peak});
  };
  const auto& [training, parallel] = std::tie(config.train.training, config.train.parallel);
  const std::int64_t batch = training.local_batch_size;
  const bool is_sharded = parallel.strategy == "fsdp";
  // The number of micro-steps stays as it is: also where the global batch was given.
  const auto with_global = [&](std::int64_t sequences) {
    return config.train.origins.contains("training.global_batch_size")
               ? fmt::format(" --training.global_batch_size {}", sequences)
               : "";
  };
  if (batch > 1) {
    consider(fmt::format("--training.local_batch_size {}", batch / 2) +
                 with_global(config.train.micro_batches() * (batch / 2)),
             "half the sequences of a micro-batch", [&](TrainConfig& changed) {
               changed.training.local_batch_size = batch / 2;
               changed.training.global_batch_size =
                   config.train.micro_batches() * changed.training.local_batch_size;
             });
  }
  const std::int64_t length = config.train.sequence_length();
  if (length > 1) {
    consider(fmt::format("--training.seq_len {}", length / 2), "half the tokens of a sequence",
             [&](TrainConfig& changed) { changed.training.seq_len = length / 2; });
  }
  if (!config.train.checkpoints_blocks()) {
    consider("--training.activation_checkpoint block",
             "backward computes the forward of a block again, and keeps only its input",
             [](TrainConfig& changed) { changed.training.activation_checkpoint = "block"; });
  }
  if (training.mixed_precision_param == "float32") {
    consider("--training.mixed_precision_param bfloat16", "the model computes in 16 bits",
             [](TrainConfig& changed) { changed.training.mixed_precision_param = "bfloat16"; });
  }
  if (training.mixed_precision_reduce == "float32") {
    consider("--training.mixed_precision_reduce bfloat16", "gradients are summed in 16 bits",
             [](TrainConfig& changed) { changed.training.mixed_precision_reduce = "bfloat16"; });
  }
  if (!is_sharded && parallel.ranks > 1) {
    consider("--parallel.strategy fsdp", "a rank holds 1/W of the model",
             [](TrainConfig& changed) { changed.parallel.strategy = "fsdp"; });
  }
  if (parallel.replicate_degree > 1) {
    consider("--parallel.data_parallel_replicate_degree 1", "one set of shards over all ranks",
             [](TrainConfig& changed) { changed.parallel.replicate_degree = 1; });
  }
  if (parallel.ranks > 1) {
    consider(fmt::format("--parallel.ranks {}", 2 * parallel.ranks) +
                 with_global(2 * training.global_batch_size),
             "twice the ranks, each with the same micro-batch", [&](TrainConfig& changed) {
               changed.parallel.ranks *= 2;
               changed.training.global_batch_size *= 2;
             });
  }
  if (is_sharded && parallel.reshard_after_forward.kind != ReshardAfterForward::Kind::always) {
    consider("--parallel.reshard_after_forward true", "units are freed after their forward",
             [](TrainConfig& changed) {
               changed.parallel.reshard_after_forward = ReshardAfterForward::always();
             });
  }
  if (is_sharded && parallel.prefetch_depth > 0) {
    consider(fmt::format("--parallel.prefetch_depth {}", parallel.prefetch_depth - 1),
             "one unit less is gathered ahead",
             [](TrainConfig& changed) { --changed.parallel.prefetch_depth; });
  }
  if (is_sharded && !parallel.offload_grads) {
    consider("--parallel.offload_params true --parallel.offload_grads true",
             "shards, gradients and state are in the host's memory", [](TrainConfig& changed) {
               changed.parallel.offload_params = changed.parallel.offload_grads = true;
             });
  }
  if (config.train.training.no_sync) {
    consider("--training.no_sync false", "gradients are reduced in every micro-step",
             [](TrainConfig& changed) { changed.training.no_sync = false; });
  }
  if (!config.train.has_lora()) {
    consider("--lora.rank 8", "only adapters are trained",
             [](TrainConfig& changed) { changed.lora.rank = 8; });
  }
  if (config.train.optimizer.name == "adamw" || config.train.optimizer.name == "adam") {
    consider("--optimizer.name sgd --optimizer.momentum 0.9", "one state per parameter, not two",
             [](TrainConfig& changed) {
               changed.optimizer.name = "sgd";
               changed.optimizer.momentum = 0.9;
             });
  }
  std::ranges::stable_sort(savings, std::greater<>(), &Saving::saved);
  return savings;
}

}  // namespace fsdp::estimator
