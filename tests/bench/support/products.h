/// @file
/// The matrix products of a training step.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::bench {

struct Model {
  std::string name;
  std::int64_t vocabulary, width, layers, heads, ffn, batch, length;
  std::int64_t rows() const { return batch * length; }
};

/// tiny, small and llama_124m.
const std::vector<Model>& models();

/// out = op(a) · op(b): one product of a linear layer. All matrices are contiguous.
struct Product {
  Tensor out, a, b;
  bool ta, tb;

  std::int64_t depth() const { return ta ? a.size(0) : a.size(1); }
  double flops() const;
  /// Rows, columns and depth, and whether a and b are transposed, e.g. "1024x128x352 NT".
  std::string shape() const;
};

/// The products of one step in its order: y = x Wᵀ for each linear layer, then dx = dy W and
/// dW = dyᵀ x. Weights and their gradients are distinct; activations of one width are shared.
std::vector<Product> products_of(const Model& model);

using Multiply = std::function<void(const Product&)>;

void multiply_by_ours(const Product& product);

/// The largest error of any element of out = op(a) · op(b), against the product in float64, for
/// factors that are uniform in [-1, 1). Overwrites all three matrices.
double largest_error(const Product& product, const Multiply& multiply);

}  // namespace fsdp::bench
