/// @file
/// The parameters that a case of task 2 is about: known to the scenario and to the judge.
#pragma once

#include "graded/case.h"
#include "graded/precision.h"
#include "optim/offload.h"
#include "support/toy_model.h"
#include "tensor/ops.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::graded {

/// How often bytes come and go where that is tried.
inline constexpr int kRounds = 10;

/// Option "shapes" of a case: parameter i is called "p<i>".
inline std::vector<Shape> given_shapes(const Case& asked) {
  return asked.options.value("shapes", std::vector<Shape>{{3, 2}, {3}});
}

/// Option "wide": float64 instead of float32.
inline DType given_dtype(const Case& asked) {
  return asked.options.value("wide", false) ? DType::float64 : DType::float32;
}

/// Option "offload": the shard is on the host.
inline optim::Offload offload_of(const Case& asked) {
  const bool is_offloaded = asked.options.value("offload", false);
  return {.params = is_offloaded, .grads = is_offloaded};
}

inline std::string name_of_place(Device device) {
  return device.is_host() ? "the host" : to_string(device);
}

/// The dtype that the model reads. Option "param": another than that of the parameters.
inline DType full_dtype(const Case& asked) {
  return precision_of(asked.options).param_dtype_for(given_dtype(asked));
}

/// The values of parameter i before it became part of a flat vector. Those in float64 have more
/// digits than a float32 can hold.
inline Tensor given_values(const Case& asked, std::size_t i) {
  const Tensor values = testing::noise(given_shapes(asked).at(i), 64 * asked.seed + i);
  if (given_dtype(asked) == DType::float32) return values;
  Tensor wide = Tensor::empty(values.shape(), DType::float64);
  ops::copy(wide, values);
  ops::scale(wide, 1.0 / 3);
  return wide;
}

}  // namespace fsdp::graded
