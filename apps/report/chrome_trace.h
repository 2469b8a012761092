/// @file
/// @ingroup report
/// A run as Chrome-trace JSON: what chrome://tracing and Perfetto open.
#pragma once

#include "report/run_record.h"

#include <string>

namespace fsdp::report {

/// A rank is a process, a stream a thread, memory a counter with a value a kind. A collective is
/// tied to the bar that follows it by a flow, allocations are instants. Times in microseconds.
std::string to_chrome_json(const RunRecord& record);

}  // namespace fsdp::report
