#include "support/training.h"

#include "autograd/functions.h"
#include "base/check.h"
#include "base/philox.h"
#include "comm/world.h"
#include "nn/lora.h"
#include "optim/local_gradients.h"
#include "parallel/ddp.h"
#include "strategies/trained_model.h"
#include "task8_beyond/checkpoint.h"
#include "task8_beyond/mesh.h"
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

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(
      a, b, {}, [](float x) { return std::bit_cast<std::uint32_t>(x); },
      [](float x) { return std::bit_cast<std::uint32_t>(x); });
}

/// One rank's training. `losses` has a place for every micro-batch of every step.
class RankTraining {
 public:
  RankTraining(const TrainingCase& options, ProcessGroup* group, std::vector<float>& losses)
      : options_(options),
        group_(group),
        rank_(group == nullptr ? 0 : group->rank()),
        world_size_(group == nullptr ? 1 : group->size()),
        losses_(losses) {}

  void run(TrainingResult& result, std::mutex& mutex) {
    const auto make_optimizer = [] {
      return std::make_shared<optim::AdamW>(optim::AdamW::Options{});
    };
    DeferredInit deferred;
    const auto make_model = [&] {
      auto model = std::make_shared<nn::TransformerLM>(options_.model);
      if (options_.recipe.has_lora()) nn::add_lora(*model, options_.recipe.lora);
      return model;
    };
    model_ = options_.meta_start ? deferred.build(make_model) : make_model();
    for (const nn::NamedParameter& each : model_->named_parameters()) {
      Variable(each.variable).set_requires_grad(options_.recipe.trains(each.path));
    }
    strategies::checkpoint_blocks(*model_, options_.recipe);

    std::shared_ptr<ProcessGroup> shared(group_, [](ProcessGroup*) {});
    if (options_.recipe.strategy != Strategy::fsdp) {
      std::vector<optim::MasterWeights::Part> parts;
      if (options_.recipe.is_zero()) {
        parts = parallel::owned_parts(model_->variables(), options_.recipe.zero.partition, *group_);
      }
      masters_ = optim::MasterWeights(model_->variables(), options_.recipe.precision, parts, {},
                                      options_.recipe.sharding.offload);
      model_->register_forward_pre_hook([this](nn::Module&) { masters_.refresh(); });
    }
    std::unique_ptr<optim::GradientEngine> engine;
    ShardedModel* sharded = nullptr;
    if (options_.recipe.strategy == Strategy::fsdp) {
      FullyShardOptions sharding = strategies::shard_options(options_.recipe);
      sharding.deferred = options_.meta_start ? &deferred : nullptr;
      const std::shared_ptr<ProcessGroup> group =
          options_.recipe.replicas == 1 ? shared : make_mesh(*shared, options_.recipe.replicas);
      auto made = fully_shard(*model_, group, sharding);
      made->attach_optimizer(make_optimizer);
      strategies::checkpoint_units(*model_, options_.recipe, *made);
      sharded = made.get();
      engine = std::move(made);
      if (options_.load_from) sharded->load_checkpoint(*options_.load_from);
    } else if (options_.recipe.strategy == Strategy::ddp) {
      engine = std::make_unique<parallel::DdpGradients>(model_->variables(), shared,
                                                        options_.recipe.bucket_bytes, masters_);
    } else if (options_.recipe.strategy != Strategy::single) {
      engine = make_zero(shared);
    } else {
      engine = std::make_unique<optim::LocalGradients>(model_->variables(), masters_);
    }

    const std::shared_ptr<optim::AdamW> whole = make_optimizer();
    make_batches();
    at_border_of_steps();
    for (int step = options_.first_step; step < options_.first_step + options_.steps; ++step) {
      gradients(*engine, step);
      if (options_.recipe.clip > 0) {
        const double norm = sharded != nullptr
                                ? sharded->clip_grad_norm(options_.recipe.clip)
                                : optim::clip_by_global_norm(*engine, group_, options_.recipe.clip);
        if (rank_ == 0) result.norms.push_back(norm);
      }
      const double lr = 1e-2 / (1 + step);
      if (sharded != nullptr) {
        sharded->step(lr);
      } else {
        whole->step(engine->pieces(), lr);
        if (zero_ != nullptr) zero_->broadcast_parameters();
      }
      engine->zero_grad();
    }
    at_border_of_steps();
    for (const auto& [at, loss] : loss_tensors_) losses_[at] = static_cast<float>(loss.item());
    if (sharded != nullptr && options_.save_to) {
      sharded->save_checkpoint(io::CheckpointFolder(*options_.save_to),
                               options_.first_step + options_.steps, {});
    }
    const std::lock_guard<std::mutex> lock(mutex);
    sharded != nullptr ? collect(*sharded, result) : collect(*engine, *whole, result);
  }

 private:
  std::unique_ptr<optim::GradientEngine> make_zero(const std::shared_ptr<ProcessGroup>& group) {
    std::unique_ptr<parallel::ZeroGradients> made;
    if (options_.recipe.strategy == Strategy::zero1) {
      made = std::make_unique<parallel::Zero1Gradients>(
          model_->variables(), group, options_.recipe.zero, masters_, options_.recipe.bucket_bytes);
    } else {
      made = std::make_unique<parallel::Zero2Gradients>(model_->variables(), group,
                                                        options_.recipe.zero, masters_);
    }
    zero_ = made.get();
    return made;
  }

  optim::StepPlan plan() const {
    const int micro_steps = options_.micro_batches / world_size_;
    return {micro_steps, options_.no_sync ? micro_steps : 1};
  }

  int micro_batch(int m) const {
    return static_cast<int>(plan().micro_batch(m, rank_, world_size_));
  }

  /// All of them before the first step: on a device, the host waits until it has written them.
  void make_batches() {
    for (int step = options_.first_step; step < options_.first_step + options_.steps; ++step) {
      for (int m = 0; m < plan().micro_steps; ++m) {
        batches_.push_back(
            make_micro_batch(options_.model, options_.batch, options_.seed, step, micro_batch(m)));
      }
    }
  }

  void at_border_of_steps() {
    if (!options_.at_border_of_steps) return;
    const auto barrier = [this] {
      if (group_ != nullptr) group_->barrier({"border of steps", Phase::forward}).wait();
    };
    barrier();
    if (rank_ == 0) options_.at_border_of_steps();
    barrier();
  }

  void gradients(optim::GradientEngine& engine, int step) {
    engine.begin_step(plan());
    for (int m = 0; m < plan().micro_steps; ++m) {
      const MicroBatch& micro = batches_.at(loss_tensors_.size());
      const Variable loss = cross_entropy((*model_)(Variable(micro.tokens)), micro.targets);
      const int at = (step - options_.first_step) * options_.micro_batches + micro_batch(m);
      loss_tensors_.emplace_back(static_cast<std::size_t>(at), loss.data());
      loss.backward();
      engine.end_micro_step();
    }
    engine.finish_gradients();
  }

  static void put(std::vector<float>& whole, const io::StateSlice& slice) {
    whole.resize(static_cast<std::size_t>(numel_of(slice.full_shape)));
    const auto values = slice.values.to_vector<float>();
    std::copy(values.begin(), values.end(), whole.begin() + slice.begin);
  }

  void collect(ShardedModel& model, TrainingResult& result) {
    for (const io::StateSlice& slice : model.state_slices(/*with_replicated=*/true)) {
      put(result.state[slice.name], slice);
    }
  }

  void collect(optim::GradientEngine& engine, optim::AdamW& optimizer, TrainingResult& result) {
    std::map<std::string, Shape> shapes;
    for (const auto& [path, variable] : model_->variables()) {
      shapes[path] = variable.shape();
      const bool is_owned = zero_ != nullptr && masters_.has(variable);
      if (is_owned) {
        put(result.state["param/" + path],
            {path, variable.shape(), masters_.begin_of(variable), masters_.of(variable)});
      }
      std::vector<float>& values = is_owned ? result.copies[path] : result.state["param/" + path];
      const bool is_first = values.empty();
      std::vector<float> mine =
          cast(is_owned ? variable.data() : masters_.of(variable), DType::float32)
              .to_vector<float>();
      FSDP_CHECK(is_first || same_bits(mine, values), "rank {} has another {}", rank_, path);
      values = std::move(mine);
    }
    for (std::size_t i = 0; i < engine.pieces().size(); ++i) {
      const optim::Piece& piece = engine.pieces()[i];
      const std::int64_t begin = zero_ == nullptr ? 0 : zero_->owned()[i].begin;
      for (const auto& [name, tensor] : optimizer.state(piece)) {
        put(result.state[name + "/" + piece.key],
            {name, shapes.at(piece.key), begin, tensor.view({tensor.numel()})});
      }
    }
  }

  const TrainingCase& options_;
  ProcessGroup* group_;
  int rank_;
  int world_size_;
  std::vector<float>& losses_;
  std::vector<MicroBatch> batches_;
  std::vector<std::pair<std::size_t, Tensor>> loss_tensors_;  // read when all steps are done
  std::shared_ptr<nn::TransformerLM> model_;
  optim::MasterWeights masters_;  // of what is whole
  parallel::ZeroGradients* zero_ = nullptr;
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

TrainingResult train(const TrainingCase& options) {
  TrainingResult result;
  std::mutex mutex;
  std::vector<float> losses(static_cast<std::size_t>(options.steps * options.micro_batches));
  const std::uint64_t seed_of_model =
      options.seed_of_model != 0 ? options.seed_of_model : options.seed;
  if (options.recipe.strategy == Strategy::single) {
    Context context({.threads = options.threads, .seed = seed_of_model});
    ContextScope scope(context);
    run_on_device(options, [&] { RankTraining(options, nullptr, losses).run(result, mutex); });
  } else {
    const RankOptions ranks{.world_size = options.recipe.ranks,
                            .threads_per_rank = options.threads,
                            .seed = seed_of_model,
                            .has_cpu_host = options.recipe.sharding.offload.is_on()};
    run_ranks(ranks, [&](ProcessGroup& group) {
      run_on_device(options, [&] { RankTraining(options, &group, losses).run(result, mutex); });
    });
  }
  const auto micro_batches = static_cast<std::size_t>(options.micro_batches);
  for (std::size_t step = 0; step < static_cast<std::size_t>(options.steps); ++step) {
    const std::span<const float> of_step(losses.data() + step * micro_batches, micro_batches);
    result.losses.push_back(tree_sum(of_step) * (1.0F / static_cast<float>(options.micro_batches)));
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
