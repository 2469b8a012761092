/// @file
/// Gradients against central finite differences, in float64.
#pragma once

#include "autograd/functions.h"
#include "base/philox.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace fsdp {

/// `numel_of(shape)` float64 numbers in [low, high), different for every seed.
inline Tensor random_tensor(Shape shape, std::uint64_t seed, double low = -1, double high = 1) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = low + (high - low) * (random_word(seed, i) * 0x1p-32);
  }
  return Tensor::from(values, std::move(shape));
}
inline Variable random_leaf(Shape shape, std::uint64_t seed) {
  return Variable(random_tensor(std::move(shape), seed), true);
}
inline Tensor int_tensor(std::vector<std::int32_t> values, Shape shape) {
  return Tensor::from(values, std::move(shape));
}

/// Any output as one number that every element of it influences differently.
inline Variable weigh(const Variable& y) {
  return sum(multiply(y, Variable(random_tensor(y.shape(), 99))));
}

/// Compares the gradients of `loss` for every element of every leaf with (f(x+h) - f(x-h)) / 2h.
inline void check_gradients(const std::function<Variable()>& loss, std::vector<Variable> leaves,
                            double tolerance = 1e-7) {
  for (Variable& leaf : leaves) leaf.set_grad({});
  loss().backward();
  const double h = 1e-5;
  for (std::size_t l = 0; l < leaves.size(); ++l) {
    REQUIRE(leaves[l].grad().is_defined());
    const std::vector<double> grad = leaves[l].grad().to_vector<double>();
    auto* data = leaves[l].data().data<double>();
    for (std::size_t i = 0; i < grad.size(); ++i) {
      const NoGradScope no_grad;
      const double before = data[i];
      data[i] = before + h;
      const double above = loss().data().item();
      data[i] = before - h;
      const double below = loss().data().item();
      data[i] = before;
      const double expected = (above - below) / (2 * h);
      INFO("leaf " << l << ", element " << i << ": backward " << grad[i] << ", differences "
                   << expected);
      REQUIRE(std::abs(grad[i] - expected) <= tolerance * (1 + std::abs(expected)));
    }
  }
}

}  // namespace fsdp
