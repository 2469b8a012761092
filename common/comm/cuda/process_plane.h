/// @file
/// @ingroup comm
/// NCCL's communicators of ranks that are processes.
#pragma once

#include "comm/processes/device_plane.h"

#include <memory>

namespace fsdp::cuda {

std::unique_ptr<processes::DevicePlane> make_process_plane();

}  // namespace fsdp::cuda
