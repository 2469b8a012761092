/// @file
/// Short trainings that tests compare with each other: the same model, data and global batch under
/// any strategy, number of ranks and options. They go the way that the programs go.
#pragma once

#include "nn/transformer.h"
#include "optim/recipe.h"
#include "strategies/trained_model.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::testing {

using optim::Checkpointing;
using optim::Strategy;
using strategies::MicroBatch;

struct TrainingCase {
  /// With offload, the CPU has a host apart.
  optim::Recipe recipe = {.micro_steps = 8, .bucket_bytes = 4096};
  int threads = 1;
  Device device = kCpu;  ///< of all ranks
  /// On CUDA, as in Context::Options. 0: each block by itself, so that no byte is used again.
  std::size_t segment_nbytes = 0;
  nn::TransformerConfig model = nn::TransformerConfig::nano();
  /// What a user did to the model that was built, before the recipe is followed.
  std::function<void(nn::TransformerLM& model)> change_model = {};
  std::int64_t batch = 2;  ///< sequences of a micro-batch
  int steps = 3;
  std::optional<std::filesystem::path> load_from;  ///< a checkpoint folder to start from
  std::optional<std::filesystem::path> save_to;    ///< where to save after the last step
  int first_step = 0;
  std::uint64_t seed_of_model = 1;
  /// Called by rank 0 before the first step and after the last, while no rank computes.
  std::function<void()> at_border_of_steps = {};

  int micro_batches() const { return recipe.ranks * recipe.micro_steps; }  ///< J
  /// The same global batch over so many ranks; under no_sync, with one reduction per step (L = M).
  TrainingCase spread(Strategy strategy, int ranks, bool no_sync = false) const;
};

/// What a training leaves: everything two trainings must agree on to the last bit.
struct TrainingResult {
  std::vector<float> losses;                         ///< one per step: over the whole global batch
  std::vector<double> norms;                         ///< before clipping, if it is on
  std::map<std::string, std::vector<float>> state;   ///< "param/<path>", "exp_avg/<path>", …
  std::map<std::string, std::vector<float>> copies;  ///< ZeRO: what every rank's model reads
};

TrainingResult train(const TrainingCase& options);

/// Trains in parts, one after the other: each saves its state in `folder`, and the next one goes on
/// from there, wherever and however it runs. The result is that of all steps together.
TrainingResult train_in_parts(std::vector<TrainingCase> parts, const std::filesystem::path& folder);

/// The first difference, as a sentence; "" if there is none.
std::string difference(const TrainingResult& a, const TrainingResult& b);

/// Micro-batch j of a step, a pure function of its arguments.
MicroBatch make_micro_batch(const nn::TransformerConfig& model, std::int64_t batch,
                            std::uint64_t seed, int step, int j);

}  // namespace fsdp::testing
