/// @file
/// Each kernel of a training in bfloat16, timed alone.
#pragma once

#include "nn/transformer.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::bench {

struct KernelRate {
  std::string name;
  double seconds;
  double nbytes;  ///< the fewest that it can move: each input read once, each output written once
  double operations;  ///< that the result needs; 0 where bytes are what limits a kernel
};

/// The kernels of a block, of the loss and of the optimizer, for `batch` sequences of `length`
/// tokens of the model; the optimizer's over as many elements as its embedding has.
std::vector<KernelRate> kernel_rates(const nn::TransformerConfig& model, std::int64_t batch,
                                     std::int64_t length);

}  // namespace fsdp::bench
