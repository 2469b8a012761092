/// @file
/// Short trainings that tests compare with each other: the same model, data and global batch under
/// any strategy, number of ranks and options.
#pragma once

#include "nn/transformer.h"
#include "optim/recipe.h"
#include "task7_integration/integration.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::testing {

using optim::Checkpointing;
using optim::Strategy;

struct TrainingCase {
  /// Its micro-steps follow from micro_batches and no_sync. With offload, the CPU has a host apart.
  optim::Recipe recipe = {.bucket_bytes = 4096};
  int threads = 1;
  Device device = kCpu;  ///< of all ranks
  /// On CUDA, as in Context::Options. 0: each block by itself, so that no byte is used again.
  std::size_t segment_nbytes = 0;
  nn::TransformerConfig model = nn::TransformerConfig::nano();
  int micro_batches = 8;   ///< J of the global batch; W divides it
  std::int64_t batch = 2;  ///< sequences of a micro-batch
  int steps = 3;
  bool no_sync = false;  ///< one reduction a step (L = M)
  bool meta_start = false;
  std::optional<std::filesystem::path> load_from;  ///< fsdp: a checkpoint folder to start from
  std::optional<std::filesystem::path> save_to;    ///< fsdp: where to save after the last step
  int first_step = 0;
  std::uint64_t seed = 1;           ///< of the data, and of the model unless said otherwise
  std::uint64_t seed_of_model = 0;  ///< 0 = seed
  /// Called by rank 0 before the first step and after the last, while no rank computes.
  std::function<void()> at_border_of_steps = {};
};

/// What a training leaves: everything two trainings must agree on to the last bit.
struct TrainingResult {
  std::vector<float> losses;                         ///< one per step: over the whole global batch
  std::vector<double> norms;                         ///< before clipping, if it is on
  std::map<std::string, std::vector<float>> state;   ///< "param/<path>", "exp_avg/<path>", …
  std::map<std::string, std::vector<float>> copies;  ///< ZeRO: what every rank's model reads
};

TrainingResult train(const TrainingCase& options);

/// Trains with FSDP in parts, one after the other: each saves its state in `folder`, and the next
/// one goes on from there, wherever and however it runs. The result is that of all steps together.
TrainingResult train_in_parts(std::vector<TrainingCase> parts, const std::filesystem::path& folder);

/// The first difference, as a sentence; "" if there is none.
std::string difference(const TrainingResult& a, const TrainingResult& b);

/// Micro-batch j of a step: tokens (B, T) and their successors, a pure function of its arguments.
struct MicroBatch {
  Tensor tokens;
  Tensor targets;
};
MicroBatch make_micro_batch(const nn::TransformerConfig& model, std::int64_t batch,
                            std::uint64_t seed, int step, int j);

}  // namespace fsdp::testing
