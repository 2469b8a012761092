/// @file
/// Mixed precision in the options of a case: "param" and "reduce", names of dtypes.
#pragma once

#include "base/half_floats.h"
#include "graded/case.h"
#include "optim/mixed_precision.h"

#include <optional>
#include <string>

namespace fsdp::graded {

/// What `options` say under `key`: "bfloat16", "float16" or "float32".
inline std::optional<DType> dtype_in(const Json& options, const char* key) {
  return dtype_named(options.value(key, std::string()));
}

/// Without "param" and "reduce", none.
inline optim::MixedPrecision precision_of(const Json& options) {
  return {.param_dtype = dtype_in(options, "param"), .reduce_dtype = dtype_in(options, "reduce")};
}

/// `value` as a tensor of this dtype holds it.
inline float rounded(float value, DType dtype) {
  if (dtype == DType::bfloat16) return static_cast<float>(BFloat16(value));
  if (dtype == DType::float16) return static_cast<float>(Float16(value));
  return value;
}

}  // namespace fsdp::graded
