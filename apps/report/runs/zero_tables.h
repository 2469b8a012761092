/// @file
/// @ingroup report
/// Tables of ZeRO-1 and ZeRO-2 on a modeled machine: what they cost and save beside DDP and FSDP.
#pragma once

#include "report/runs/short_run.h"

#include <string>

namespace fsdp::report {

/// One row per strategy: a step's time on the virtual clock, the highest memory and the optimizer
/// state of the rank that holds most, and what a rank receives by how many collectives. All else is
/// as in `run`. With SGD across boxes, ZeRO-1 is slower than DDP and saves nothing.
std::string strategies_table(const ShortRun& run, const CostModel& machine);

/// ZeRO-2 with ever larger ZeroOptions::reduce_buffer_bytes: fewer collectives, and more memory.
std::string buffers_table(const ShortRun& run, const CostModel& machine);

/// The loads of the partitions: of five small parameters, of one giant beside small ones, and of
/// the model of `run` over its ranks.
std::string owners_table(const ShortRun& run);

}  // namespace fsdp::report
