/// @file
/// @ingroup comm
/// DeviceData::canonical: copies, and sums in the canonical order.
#pragma once

#include "comm/device_plane.h"

#include <memory>

namespace fsdp::cuda {

std::unique_ptr<threads::DevicePlane> make_canonical_plane();

}  // namespace fsdp::cuda
