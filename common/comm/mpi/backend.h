/// @file
/// @ingroup comm
/// The MPI backend's Backend.
#pragma once

#include "comm/mpi/engine.h"

#include <memory>

namespace fsdp::mpi {

/// This process's place in `group`. Used from the rank's thread only.
std::shared_ptr<Backend> make_backend(std::shared_ptr<Engine> engine,
                                      std::shared_ptr<Membership> group);

}  // namespace fsdp::mpi
