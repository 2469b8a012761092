/// @file
/// How fast the machine could multiply and copy at best.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp::bench {

/// Repeats one fused multiply-add for each of a set of registers `times` times, and then writes
/// them to `to`: 64-byte aligned, kMultiplyAddBytes at most.
void multiply_add(std::int64_t times, std::byte* to);
constexpr std::size_t kMultiplyAddBytes = 32 * 64;

/// Floating-point operations per second of independent fused multiply-adds on registers, on all
/// threads of the current Context. A fused multiply-add is two operations.
double multiply_add_peak();

/// Of `threads` threads that copy what no cache holds: a byte that is read counts, and one that is
/// written.
double seconds_per_gigabyte(int threads);

}  // namespace fsdp::bench
