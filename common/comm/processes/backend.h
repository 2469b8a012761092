/// @file
/// @ingroup comm
/// The Backend of ranks that are processes.
#pragma once

#include "comm/processes/engine.h"

#include <memory>

namespace fsdp::processes {

/// This process's place in `group`. Used from the rank's thread only.
std::shared_ptr<Backend> make_backend(std::shared_ptr<Engine> engine,
                                      std::shared_ptr<Membership> group);

}  // namespace fsdp::processes
