/// @file
/// @ingroup comm
/// One rank of any number of ranks, alone: no peer answers, but time passes.
#pragma once

#include "comm/process_group.h"

#include <memory>

namespace fsdp {

/// Rank `rank` of `world_size` ranks that do not exist. Collectives move no data; they take
/// (W-1)·alpha + beta·(bytes received) on the communication channel of the current Context's
/// virtual clock, starting at max(issue time, channel free), and wait() joins the two timelines.
/// Without a clock they finish at once. For tensors on `fake` (data on `cpu` does not change,
/// outputs included).
std::shared_ptr<Backend> make_fake_backend(int rank, int world_size);

/// The same as a group.
ProcessGroup make_fake_group(int rank, int world_size);

}  // namespace fsdp
