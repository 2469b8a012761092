/// @file
/// @ingroup tensor
/// How a kernel reports a token or a target outside its range: it cannot throw, so it leaves a word
/// in device memory, which the host reads when it next waits.
#pragma once

#include <cstdint>

namespace fsdp::cuda {

/// The first index out of range, as position · 2³² + the index's 32 bits: the smallest word wins,
/// so what is reported does not depend on the order of threads. Start with kNoIndexError.
using IndexError = unsigned long long;
inline constexpr IndexError kNoIndexError = ~0ULL;

inline constexpr std::int64_t position_of(IndexError error) {
  return static_cast<std::int64_t>(error >> 32U);
}
inline constexpr std::int32_t index_of(IndexError error) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(error));
}

}  // namespace fsdp::cuda
