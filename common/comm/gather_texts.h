/// @file
/// @ingroup comm
/// Texts of any length, one per rank, for rank 0: records, reports.
#pragma once

#include "comm/process_group.h"

#include <string>
#include <vector>

namespace fsdp {

/// Gathers the text of every rank on rank 0, which gets them by rank; the others get nothing. The
/// texts may differ in length. Collective. They travel one after the other, so that no rank holds
/// more than two of them on the way.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& own,
                                      const Label& label);

}  // namespace fsdp
