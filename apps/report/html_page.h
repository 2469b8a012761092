/// @file
/// @ingroup report
/// A run as one page that needs nothing else: no server, no other file, no network.
#pragma once

#include "report/run_record.h"

#include <string>

namespace fsdp::report {

/// What the page draws from, as JSON (embedded in the page).
std::string to_page_json(const RunRecord& record);

/// The page. Streams and memory over time of every rank; a unit that is clicked (or named in the
/// address, as in `#unit=model.layers.0`) shows its life: every event of it, and its bytes.
std::string to_html(const RunRecord& record);

}  // namespace fsdp::report
