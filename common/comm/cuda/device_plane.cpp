// By itself: it takes the place of comm/no_device_plane.cpp in programs that are linked with CUDA.
#include "comm/device_plane.h"

#include "comm/cuda/canonical_plane.h"
#include "comm/cuda/nccl_plane.h"
#include "comm/cuda/process_plane.h"
#include "comm/processes/device_plane.h"

namespace fsdp::threads {

std::unique_ptr<DevicePlane> make_device_plane(DeviceData data) {
  if (data == DeviceData::nccl) return cuda::make_nccl_plane();
  return cuda::make_canonical_plane();
}

}  // namespace fsdp::threads

std::unique_ptr<fsdp::processes::DevicePlane> fsdp::processes::make_device_plane() {
  return cuda::make_process_plane();
}
