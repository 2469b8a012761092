/// @file
/// @ingroup report
/// A rank's record as text, which can be sent to another process.
#pragma once

#include "report/run_record.h"

#include <string>

namespace fsdp::report {

std::string to_text(const RankRecord& rank);
/// @throws Error if to_text() has not written it
RankRecord from_text(const std::string& text);

}  // namespace fsdp::report
