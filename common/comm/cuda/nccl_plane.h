/// @file
/// @ingroup comm
/// DeviceData::nccl: collectives of NCCL.
#pragma once

#include "comm/device_plane.h"

#include <memory>

namespace fsdp::cuda {

std::unique_ptr<threads::DevicePlane> make_nccl_plane();

}  // namespace fsdp::cuda
