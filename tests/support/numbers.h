/// @file
/// The elements of a tensor of any floating type, for tests that compare numbers.
#pragma once

#include "tensor/tensor.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace fsdp::testing {

/// The elements of a tensor, rounded to float32.
inline std::vector<float> floats_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::float32) return tensor.to_vector<float>();
  std::vector<float> rounded;
  for (const double each : tensor.to_vector<double>()) {
    rounded.push_back(static_cast<float>(each));
  }
  return rounded;
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
