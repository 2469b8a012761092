/// @file
/// @ingroup estimate
/// The sections of an estimate's text that say why.
#pragma once

#include "estimate/estimate.h"
#include "estimate/text_table.h"

#include <cstdint>
#include <string>

namespace fsdp::estimate {

std::string exact(std::int64_t nbytes);                    ///< "1,234 B"
double percent_of(std::int64_t part, std::int64_t whole);  ///< 0 of nothing

// Each is a few lines, with tables in this scale.
std::string where_is_the_peak(const Estimate& estimate, const ByteScale& scale);
std::string hot_spots(const Estimate& estimate, const ByteScale& scale);
std::string communication_buffers(const Estimate& estimate, const ByteScale& scale);
std::string describe_savings(const Estimate& estimate, const ByteScale& scale);

}  // namespace fsdp::estimate
