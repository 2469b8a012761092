/// @file
/// @ingroup plan
/// Quantities as a user writes them, and as we print them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::plan {

// Each @throws InputError that begins with `name`, the option's.

/// "80GB", "40GiB", "512B": bytes, from 1 to 1e18. A number without a unit is refused.
std::int64_t parse_bytes(const std::string& name, const std::string& text);
/// "400T", "400TFLOPS", "50GB/s": per second, from 1 to 1e18.
double parse_rate(const std::string& name, const std::string& text);
/// "5us", "0.5ms": picoseconds, up to 1000 seconds.
std::int64_t parse_duration(const std::string& name, const std::string& text);
/// "15%" or "0.15": from 0 to 1.
double parse_share(const std::string& name, const std::string& text);
/// "64".
std::int64_t parse_count(const std::string& name, const std::string& text);
/// "8..64": the powers of two times 8 up to 64. "8": only that.
std::vector<std::int64_t> parse_range(const std::string& name, const std::string& text);

std::string show_time(std::int64_t picoseconds);                ///< "12.35 s"; "-" for none
std::string show_memory(std::int64_t nbytes);                   ///< "61.20 GB"; "-" for none
std::string show_share(std::int64_t part, std::int64_t whole);  ///< "12.3 %"

}  // namespace fsdp::plan
