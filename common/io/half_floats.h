/// @file
/// @ingroup io
/// The 16-bit floats of checkpoints. A model computes in float32, which has all their values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace fsdp::io {

/// How a file stores the elements of a tensor: in its dtype, or as 16-bit floats of a float32 one.
enum class Stored { as_dtype, bfloat16, float16 };

/// The float32 of the same value, by bits: exact, for subnormal numbers and infinities too. A NaN
/// keeps its sign and its payload.
float from_bfloat16(std::uint16_t bits);
float from_float16(std::uint16_t bits);

/// The nearest 16-bit number, of two equally near ones the even one: the inverse of the two above.
/// Beyond the largest number comes an infinity. A NaN keeps its sign, and stays one (quiet).
std::uint16_t to_bfloat16(float value);
std::uint16_t to_float16(float value);

/// "bfloat16" or "float16".
std::string_view name_of(Stored stored);
/// The largest number that is finite.
float largest_of(Stored stored);

/// Rounds n floats to n 16-bit numbers. @return the first finite value that became an infinity;
/// null if there is none
const float* round_to(std::span<std::uint16_t> rounded, std::span<const float> values,
                      Stored stored);

/// `values` begins as n 16-bit floats in its second half, and ends as n floats. No other memory is
/// used.
void widen_in_place(std::span<float> values, Stored stored);

}  // namespace fsdp::io
