/// @file
/// @ingroup estimate
/// The configuration of an estimate: a training's, in our spelling or in torchtitan's.
#pragma once

#include "config/config.h"
#include "config/titan_keys.h"
#include "paper/memory_options.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::estimate {

struct EstimatorConfig {
  config::TrainConfig train;
  paper::Framework framework = paper::Framework::unshard;  ///< whose engine it is true of
  paper::TorchHabits habits = {};                          ///< of PyTorch
  paper::ZeroHabits zero = {};                             ///< of DeepSpeed
  bool is_real = false;                                    ///< memory_estimation.disable_fake_mode
  int rank = 0;                 ///< whose memory is reported; it matters for zero1 and zero2
  std::size_t granularity = 1;  ///< bytes that every size is rounded up to; an H100 has 512
  std::size_t memory = 0;       ///< bytes a rank's device has; 0 = not said
  double margin = 0;            ///< that shall be left, as a share of what is needed
  std::size_t limit = 0;        ///< bytes beyond which the allocator refuses; 0 = none
  std::string command = "unshard-estimate";  ///< with which the same is estimated again
  std::vector<std::string> warnings;
  config::Spellings spellings;

  /// " --key value" in every spelling that counts.
  std::string option(const std::string& key, const std::string& value) const;
  /// The options for so many ranks and replicas; those that change nothing are left out.
  std::string world_options(std::int64_t ranks, std::int64_t replicas) const;
};

/// What its formulas depend on.
paper::MemoryOptions memory_options(const EstimatorConfig& config);

/// Reads a file and the overrides of a command line, as config::load_config() does, and in addition
///
///     torchtitan                                   here
///     parallelism.data_parallel_shard_degree       parallel.ranks / replicas; -1 = all
///     parallelism.data_parallel_replicate_degree   parallel.data_parallel_replicate_degree
///     parallelism.{tensor,pipeline,context,expert}_parallel_degree    refused unless 1
///     activation_checkpoint.mode                   training.activation_checkpoint (full = block)
///     model.name, model.flavor                     model.preset (llama3 8B, 70B, 405B)
///     compile.enable, compile.components           of PyTorch's frameworks; else switched off
///     memory_estimation.enabled, .disable_fake_mode
///
/// Each counts where it stands, so the command line beats the file in either spelling. Two
/// spellings of one key that contradict each other in the same place are refused.
///
/// Flags among them may stand without a value on the command line. Number of ranks: the command
/// line, then NGPU · NNODES, then the file. Ranks without a strategy are sharded.
/// @param deepspeed a DeepSpeed configuration, as load_config() takes it
/// @throws InputError as load_config() does.
EstimatorConfig load_estimator_config(const std::optional<std::filesystem::path>& file,
                                      const std::vector<std::string>& words,
                                      const config::Environment& environment,
                                      const std::optional<std::filesystem::path>& deepspeed = {});

}  // namespace fsdp::estimate
