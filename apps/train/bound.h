/// @file
/// @ingroup train
/// What the formula of the writeup allows a rank.
#pragma once

#include "estimate/memory_options.h"
#include "train/config.h"

#include <cstdint>
#include <vector>

namespace fsdp::train {

/// What a run of the program is for.
enum class Work { training, evaluation };

/// A training as the formula sees it. Refers to `config`, which must outlive it.
estimate::MemoryOptions memory_options(const TrainConfig& config);

/// The peak of each rank of a training run, in bytes, by closed form from the configuration alone.
/// Evaluations do not raise it, except in a training of one step, where it is an upper bound then.
/// For Work::evaluation, an upper bound of what a rank holds that evaluates and trains nothing.
std::vector<std::int64_t> bound_bytes_by_rank(const TrainConfig& config,
                                              Work work = Work::training);
/// The highest of them.
std::int64_t bound_bytes(const TrainConfig& config, Work work = Work::training);

}  // namespace fsdp::train
