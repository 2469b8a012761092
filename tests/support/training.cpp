#include "support/training.h"

#include "base/check.h"
#include "base/philox.h"
#include "comm/world.h"
#include "strategies/model_files.h"
#include "tensor/cast.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <mutex>

namespace fsdp::testing {

MicroBatch make_micro_batch(const nn::TransformerConfig& model, std::int64_t batch,
                            std::uint64_t seed, int step, int j) {
  const std::int64_t length = model.max_position_embeddings + 1;
  const auto stream =
      (static_cast<std::uint64_t>(step) << 40) | (static_cast<std::uint64_t>(j) << 24);
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t < length; ++t) {
      const auto word = random_word(seed, stream + static_cast<std::uint64_t>(b * length + t));
      const auto token =
          static_cast<std::int32_t>(word % static_cast<std::uint32_t>(model.vocab_size));
      if (t + 1 < length) tokens.push_back(token);
      if (t > 0) targets.push_back(token);
    }
  }
  return {Tensor::from(tokens, {batch, model.max_position_embeddings}),
          Tensor::from(targets, {batch, model.max_position_embeddings})};
}

namespace {

constexpr std::uint64_t kDataSeed = 1;
constexpr std::uint32_t kUnseen = 0x7fc0abcd;  // of a NaN that no training leaves

/// Puts a slice in its place. What several ranks hold must have the same bits on all of them.
void put(std::map<std::string, std::vector<float>>& all, const std::string& name,
         const io::StateSlice& slice) {
  std::vector<float>& whole = all[name];
  whole.resize(static_cast<std::size_t>(numel_of(slice.full_shape)), std::bit_cast<float>(kUnseen));
  auto place = whole.begin() + slice.begin;
  for (const float value : cast(slice.values, DType::float32).to_vector<float>()) {
    const auto seen = std::bit_cast<std::uint32_t>(*place);
    FSDP_CHECK(seen == kUnseen || seen == std::bit_cast<std::uint32_t>(value),
               "two ranks differ in {}", name);
    *place++ = value;
  }
}

/// One rank's training; `group` is null for a single process.
class RankTraining {
 public:
  RankTraining(const TrainingCase& options, ProcessGroup* group)
      : options_(options),
        trained_([&] { return build(); }, options.recipe,
                 group == nullptr ? nullptr : borrowed(*group)) {
    if (options.load_from) strategies::load_checkpoint(trained_, *options.load_from);
  }

  /// `losses` has a place for every micro-batch of every step.
  void run(TrainingResult& result, std::vector<float>& losses, std::mutex& mutex) {
    const optim::Recipe& recipe = options_.recipe;
    const optim::StepPlan plan = recipe.plan();
    make_batches(plan);
    std::vector<Tensor> seen;  // losses, which are read when all steps are done
    at_border_of_steps();
    for (int step = options_.first_step; step < last_step(); ++step) {
      trained_.make_gradients(
          plan, [&](int) { return batches_.at(seen.size()); },
          [&](const Tensor& loss) { seen.push_back(loss); });
      if (recipe.clip > 0) {
        const double norm = trained_.clip(recipe.clip);
        if (trained_.is_first()) result.norms.push_back(norm);
      }
      trained_.step(1e-2 / (1 + step));
      trained_.gradients().zero_grad();
    }
    at_border_of_steps();
    for (std::size_t i = 0; i < seen.size(); ++i) {
      losses[places_[i]] = static_cast<float>(seen[i].item());
    }
    if (options_.save_to) {
      const io::CheckpointFolder folder(*options_.save_to);
      strategies::save_checkpoint(trained_, folder, last_step(), {});
    }
    const std::lock_guard<std::mutex> lock(mutex);
    for (const auto& held : trained_.state()) put(result.state, held.slice.name, held.slice);
    if (!recipe.is_zero()) return;
    for (const auto& [path, variable] : trained_.model().variables()) {
      put(result.copies, path, {path, variable.shape(), 0, variable.data()});
    }
  }

 private:
  std::shared_ptr<nn::TransformerLM> build() const {
    auto model = std::make_shared<nn::TransformerLM>(options_.model);
    if (options_.change_model) options_.change_model(*model);
    return model;
  }

  int last_step() const { return options_.first_step + options_.steps; }

  /// All of them before the first step: on a device, the host waits until it has written them.
  void make_batches(const optim::StepPlan& plan) {
    const int rank = trained_.group() == nullptr ? 0 : trained_.group()->rank();
    for (int step = options_.first_step; step < last_step(); ++step) {
      for (int m = 0; m < plan.micro_steps; ++m) {
        const auto j = static_cast<int>(plan.micro_batch(m, rank, options_.recipe.ranks));
        batches_.push_back(make_micro_batch(options_.model, options_.batch, kDataSeed, step, j));
        const int at = (step - options_.first_step) * options_.micro_batches() + j;
        places_.push_back(static_cast<std::size_t>(at));
      }
    }
  }

  void at_border_of_steps() {
    if (!options_.at_border_of_steps) return;
    trained_.barrier("border of steps");
    if (trained_.is_first()) options_.at_border_of_steps();
    trained_.barrier("border of steps");
  }

  const TrainingCase& options_;
  strategies::TrainedModel trained_;
  std::vector<MicroBatch> batches_;
  std::vector<std::size_t> places_;  // of their losses
};

/// Runs `training` in the rank's context or, for a CUDA device, in one with memory as options say.
void run_on_device(const TrainingCase& options, const std::function<void()>& training) {
  if (options.device.type != DeviceType::cuda) return training();
  Context::Options own = Context::current().options();
  own.device = options.device;
  own.segment_nbytes = options.segment_nbytes;
  own.workspace_nbytes = 1024;
  Context context(own);
  const ContextScope scope(context);
  training();
}

}  // namespace

TrainingCase TrainingCase::spread(Strategy strategy, int ranks, bool no_sync) const {
  FSDP_CHECK(micro_batches() % ranks == 0, "{} ranks do not divide {} micro-batches", ranks,
             micro_batches());
  TrainingCase over = *this;
  over.recipe.strategy = strategy;
  over.recipe.ranks = ranks;
  over.recipe.micro_steps = micro_batches() / ranks;
  over.recipe.micro_steps_per_reduction = no_sync ? over.recipe.micro_steps : 1;
  return over;
}

TrainingResult train(const TrainingCase& options) {
  const optim::Recipe& recipe = options.recipe;
  TrainingResult result;
  std::mutex mutex;
  const auto micro_batches = static_cast<std::size_t>(options.micro_batches());
  std::vector<float> losses(static_cast<std::size_t>(options.steps) * micro_batches);
  const auto train_rank = [&](ProcessGroup* group) {
    run_on_device(options, [&] { RankTraining(options, group).run(result, losses, mutex); });
  };
  if (recipe.strategy == Strategy::single) {
    Context context({.threads = options.threads, .seed = options.seed_of_model});
    const ContextScope scope(context);
    train_rank(nullptr);
  } else {
    const RankOptions ranks{.world_size = recipe.ranks,
                            .threads_per_rank = options.threads,
                            .seed = options.seed_of_model,
                            .has_cpu_host = recipe.sharding.offload.is_on()};
    run_ranks(ranks, [&](ProcessGroup& group) { train_rank(&group); });
  }
  for (auto step = losses.begin(); step != losses.end(); step += options.micro_batches()) {
    result.losses.push_back(tree_sum(std::span(step, micro_batches)) *
                            (1.0F / static_cast<float>(micro_batches)));
  }
  return result;
}

TrainingResult train_in_parts(std::vector<TrainingCase> parts,
                              const std::filesystem::path& folder) {
  TrainingResult joined;
  int steps_done = 0;
  for (TrainingCase& part : parts) {
    part.first_step = steps_done;
    part.save_to = folder;
    if (steps_done > 0) {
      part.load_from = io::CheckpointFolder(folder).latest();
      part.seed_of_model = 77;  // what is loaded must not come from initialization
    }
    TrainingResult result = train(part);
    joined.losses.insert(joined.losses.end(), result.losses.begin(), result.losses.end());
    joined.norms.insert(joined.norms.end(), result.norms.begin(), result.norms.end());
    joined.state = std::move(result.state);
    steps_done += part.steps;
  }
  return joined;
}

std::string difference(const TrainingResult& a, const TrainingResult& b) {
  for (std::size_t i = 0; i < std::max(a.losses.size(), b.losses.size()); ++i) {
    if (i >= a.losses.size() || i >= b.losses.size()) return "another number of steps";
    if (std::bit_cast<std::uint32_t>(a.losses[i]) != std::bit_cast<std::uint32_t>(b.losses[i])) {
      return fmt::format("loss of step {}: {:.9g} and {:.9g}", i, a.losses[i], b.losses[i]);
    }
  }
  if (a.norms != b.norms) return "a gradient norm";
  if (a.state.size() != b.state.size()) {
    return fmt::format("{} and {} state tensors", a.state.size(), b.state.size());
  }
  for (const auto& [name, values] : a.state) {
    const auto found = b.state.find(name);
    if (found == b.state.end()) return name + " is missing";
    if (found->second.size() != values.size()) return name + " has another size";
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(values[i]) ==
          std::bit_cast<std::uint32_t>(found->second[i])) {
        continue;
      }
      return fmt::format("{}[{}]: {:.9g} and {:.9g}", name, i, values[i], found->second[i]);
    }
  }
  return {};
}

}  // namespace fsdp::testing
