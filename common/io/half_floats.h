/// @file
/// @ingroup io
/// The 16-bit floats of checkpoints. A model computes in float32, which has all their values.
#pragma once

#include <cstdint>
#include <span>

namespace fsdp::io {

/// How a file stores the elements of a tensor: in its dtype, or as 16-bit floats of a float32 one.
enum class Stored { as_dtype, bfloat16, float16 };

/// The float32 of the same value, by bits: exact, for subnormal numbers and infinities too. A NaN
/// keeps its sign and its payload.
float from_bfloat16(std::uint16_t bits);
float from_float16(std::uint16_t bits);

/// `values` begins as n 16-bit floats in its second half, and ends as n floats. No other memory is
/// used.
void widen_in_place(std::span<float> values, Stored stored);

}  // namespace fsdp::io
