/// @file
/// The elements of a tensor of any floating type, for tests that compare numbers.
#pragma once

#include "tensor/dispatch.h"
#include "tensor/tensor.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace fsdp::testing {

/// The elements of a tensor as float32; those of float64 are rounded.
inline std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> floats;
  dispatch_floating(tensor.dtype(), [&]<class T>(T) {
    for (const T each : tensor.to_vector<T>()) floats.push_back(static_cast<float>(each));
  });
  return floats;
}

/// The elements of a float64 tensor with all their digits; none of any other tensor.
inline std::vector<std::string> digits_of(const Tensor& tensor) {
  std::vector<std::string> digits;
  if (tensor.dtype() != DType::float64) return digits;
  for (const double each : tensor.to_vector<double>()) {
    digits.push_back(fmt::format("{:.17g}", each));
  }
  return digits;
}

}  // namespace fsdp::testing
