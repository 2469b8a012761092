/// @file
/// @ingroup tensor
/// The hyperparameters of one step of each optimizer, which its kernels take.
#pragma once

#include <cstdint>

namespace fsdp::ops {

struct AdamWStep {
  double lr, beta1, beta2, eps, weight_decay;
  std::int64_t step;           ///< counts from 1
  bool decays_by_rate = true;  ///< AdamW: param is multiplied by 1 - lr · weight_decay; false: Adam
};

struct SgdStep {
  double lr, momentum, weight_decay;
  bool first;  ///< the momentum buffer is still undefined
};

struct AdamaxStep {
  double lr, beta1, beta2, eps, weight_decay;
  std::int64_t step;  ///< counts from 1
};

struct AdagradStep {
  double lr, lr_decay, eps, weight_decay;
  std::int64_t step;  ///< counts from 1
};

struct AdadeltaStep {
  double lr, rho, eps, weight_decay;
};

}  // namespace fsdp::ops
