/// @file
/// @ingroup report
/// The records of ranks that are processes, brought to the one that writes.
#pragma once

#include "comm/process_group.h"
#include "report/run_record.h"

namespace fsdp::report {

/// Afterward, rank 0's `record` has the records of all ranks. Before, a rank's own must be in its
/// place (see record_rank). Collective, so a rank that fails in here ends all of them. Ranks may be
/// processes, each with a `record` of its own, or threads that share one.
void gather_ranks(RunRecord& record, ProcessGroup& group);

}  // namespace fsdp::report
