/// @file
/// @ingroup train
/// What the formulas of the writeup say of a rank.
#pragma once

#include "config/config.h"
#include "paper/memory_options.h"

#include <cstdint>
#include <vector>

namespace fsdp::train {

/// What a run of the program is for.
enum class Purpose { training, evaluation };

/// A training as the formula sees it.
paper::MemoryOptions memory_options(const config::TrainConfig& config);

/// The peak of each rank of a training run, in bytes, by closed form from the configuration alone.
/// Evaluations do not raise it, except in a training of one step, where it is an upper bound then.
/// For Purpose::evaluation, upper bounds of what a rank holds that evaluates and trains nothing.
/// @param space  the memory of its device, or what is offloaded to that of its host
std::vector<std::int64_t> bound_bytes_by_rank(
    const config::TrainConfig& config, Purpose purpose = Purpose::training,
    paper::MemorySpace space = paper::MemorySpace::device);
/// The highest of them.
std::int64_t bound_bytes(const config::TrainConfig& config, Purpose purpose = Purpose::training);

/// The bytes that each rank receives in a step, evaluations and checkpoints aside: what a training
/// needs (paper/wire_formula.h), and M losses and two flags of each other rank. A loss that is
/// scaled takes a third flag, whether a gradient has overflowed; if so, the step is skipped, and
/// nothing is clipped or updated.
std::int64_t received_bytes_per_step(const config::TrainConfig& config, bool is_skipped = false);

}  // namespace fsdp::train
