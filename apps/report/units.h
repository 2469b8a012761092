/// @file
/// @ingroup report
/// Numbers with units, for axes and labels. Whole numbers throughout: the text of a figure must not
/// depend on a compiler.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp::report {

/// What the numbers of an axis are multiples of.
struct Unit {
  std::string_view name;
  std::int64_t size;  ///< in picoseconds, or bytes
};

Unit time_unit(std::int64_t picoseconds);  ///< ps, ns, µs, ms, s: the largest that fits once
Unit byte_unit(std::int64_t nbytes);       ///< B, kB, MB, GB (powers of 1000)

/// "12.35 µs", "3 kB": rounded to `decimals`, without trailing zeros.
std::string in_unit(std::int64_t value, Unit unit, int decimals);
/// 1234567 -> "1,234,567".
std::string grouped(std::int64_t value);

/// The distance of an axis' ticks: 1, 2 or 5 times a power of ten, at most `ticks` of them up to
/// `length`.
std::int64_t tick_step(std::int64_t length, int ticks);

}  // namespace fsdp::report
