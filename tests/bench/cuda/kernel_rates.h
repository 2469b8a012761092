/// @file
/// Each kernel of a training in bfloat16, timed alone, and how often a step runs it.
#pragma once

#include "config/config.h"

#include <string>
#include <vector>

namespace fsdp::bench {

struct KernelRate {
  std::string name;
  double per_step;  ///< calls in a step of one micro-batch; a fraction if sizes differ
  double seconds;   ///< of a call; 0 on the fake device
  double nbytes;    ///< the fewest that it can move: each input read once, each output written once
  double operations;  ///< that the result needs; 0 where bytes are what limits a kernel
};

/// The kernels of a block, of the loss and of the optimizer, for a micro-batch of the training; the
/// optimizer's over as many elements as the embedding has.
std::vector<KernelRate> kernel_rates(const config::TrainConfig& config);

}  // namespace fsdp::bench
