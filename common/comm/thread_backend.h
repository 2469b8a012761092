/// @file
/// @ingroup comm
/// The thread backend's Backend: a seat in a group of a Scheduler.
#pragma once

#include "comm/process_group.h"
#include "comm/thread_scheduler.h"

#include <memory>

namespace fsdp::threads {

/// The backend of member `member` of `group`. Used from that rank's thread only.
std::shared_ptr<Backend> make_backend(std::shared_ptr<Scheduler> scheduler,
                                      std::shared_ptr<Group> group, int member);

}  // namespace fsdp::threads
