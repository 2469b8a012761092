/// @file
/// What a training step cannot do without: its products.
#pragma once

#include "bench/support/openblas.h"
#include "nn/transformer.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::bench {

/// The products of one step by OpenBLAS: y = x·Wᵀ, dx = dy·W, dW = dyᵀ·x for every linear layer,
/// weights distinct.
class LowerBound {
 public:
  /// @param rows tokens of the step @param family of OpenBLAS's kernels, see OpenBlas
  LowerBound(const nn::TransformerConfig& config, std::int64_t rows, const std::string& family,
             int threads);
  double step_seconds();

 private:
  struct Layer {
    std::int64_t out, in;
    std::vector<float> weight, grad;
  };
  enum class Which { output, weight_grad, input_grad };
  void add(std::int64_t out, std::int64_t in);
  void product(Layer& layer, Which which);

  OpenBlas openblas_;
  std::int64_t rows_;
  std::vector<Layer> layers_;
  std::vector<float> x_, y_;
};

}  // namespace fsdp::bench
