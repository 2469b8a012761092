/// @file
/// @ingroup paper
/// Bytes of an element, and where a training copies values into another format.
#pragma once

#include "optim/mixed_precision.h"

#include <cstdint>
#include <optional>

namespace fsdp::paper {

/// Of parameters without mixed precision, of optimizer state, and of what stays float32 always.
inline constexpr std::int64_t kFloatBytes = 4;

/// What a policy makes of float32 masters.
struct Formats {
  /// `compression`: what whole gradients travel in; none: what they are summed in.
  explicit Formats(const optim::MixedPrecision& policy,
                   const std::optional<DType>& compression = {})
      : Formats(policy.param_dtype_for(DType::float32), policy.reduce_dtype_for(DType::float32),
                compression) {}

  std::int64_t param;    ///< p: what the model reads, activations, gradients of a micro-batch
  std::int64_t sum;      ///< g: sums of gradients
  std::int64_t wire;     ///< what travels of whole gradients
  bool casts_params;     ///< masters are copied into what the model reads
  bool casts_gradients;  ///< gradients are copied before they are summed
  bool compresses;       ///< what travels is a copy of what is summed
  bool widens_sums;      ///< sums are copied into the masters' format

 private:
  Formats(DType of_params, DType of_sums, const std::optional<DType>& compression)
      : param(static_cast<std::int64_t>(size_of(of_params))),
        sum(static_cast<std::int64_t>(size_of(of_sums))),
        wire(static_cast<std::int64_t>(size_of(compression.value_or(of_sums)))),
        casts_params(of_params != DType::float32),
        casts_gradients(of_sums != of_params),
        compresses(compression.value_or(of_sums) != of_sums),
        widens_sums(of_sums != DType::float32) {}
};

}  // namespace fsdp::paper
