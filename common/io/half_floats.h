/// @file
/// @ingroup io
/// The 16-bit floats of checkpoints, as they lie in a file. float32 has all their values.
#pragma once

#include "base/types.h"

#include <cstdint>
#include <span>

namespace fsdp::io {

/// The float32 of the same value, by bits: exact, for subnormal numbers and infinities too. A NaN
/// keeps its sign and its payload.
float from_bfloat16(std::uint16_t bits);
float from_float16(std::uint16_t bits);

/// The nearest 16-bit number, of two equally near ones the even one: the inverse of the two above.
/// Beyond the largest number comes an infinity. A NaN keeps its sign, and stays one (quiet).
std::uint16_t to_bfloat16(float value);
std::uint16_t to_float16(float value);

/// The largest number that is finite. In what follows, `half` is bfloat16 or float16.
float largest_of(DType half);

/// Rounds n floats to n 16-bit numbers. @return the first finite value that became an infinity;
/// null if there is none
const float* round_to(std::span<std::uint16_t> rounded, std::span<const float> values, DType half);

/// `values` begins as n 16-bit floats in its second half, and ends as n floats. No other memory is
/// used.
void widen_in_place(std::span<float> values, DType half);

}  // namespace fsdp::io
