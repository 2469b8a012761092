/// @file
/// @ingroup comm
/// The thread backend's Backend: a progress in a group of a Rendezvous.
#pragma once

#include "comm/process_group.h"
#include "comm/thread_rendezvous.h"

#include <memory>

namespace fsdp::threads {

/// The backend of member `member` of `group`. Used from that rank's thread only.
std::shared_ptr<Backend> make_backend(std::shared_ptr<Rendezvous> rendezvous,
                                      std::shared_ptr<Group> group, int member);

}  // namespace fsdp::threads
