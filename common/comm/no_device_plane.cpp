// By itself, so that a program may bring its own: those that are linked with CUDA do.
#include "base/check.h"
#include "comm/device_plane.h"
#include "comm/processes/device_plane.h"

namespace fsdp::threads {

std::unique_ptr<DevicePlane> make_device_plane(DeviceData data) {
  FSDP_CHECK(data == DeviceData::canonical,
             "the ranks were to communicate by NCCL, but this program was linked without CUDA. "
             "Leave device_data at canonical, or use a program that is linked with CUDA.");
  return nullptr;
}

}  // namespace fsdp::threads

std::unique_ptr<fsdp::processes::DevicePlane> fsdp::processes::make_device_plane() {
  return nullptr;
}
