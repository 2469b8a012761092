// Devices and errors. Every device is an H100 in what it says of itself.
#include "support/cuda_on_host/machine.h"
#include "support/cuda_on_host/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace cuda_on_host {
namespace {

thread_local int chosen_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

struct ErrorText {
  const char *name, *text;
};

ErrorText text_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return {"cudaSuccess", "no error"};
    case cudaErrorInvalidValue:
      return {"cudaErrorInvalidValue", "invalid argument"};
    case cudaErrorMemoryAllocation:
      return {"cudaErrorMemoryAllocation", "out of memory"};
    case cudaErrorInvalidConfiguration:
      return {"cudaErrorInvalidConfiguration", "invalid configuration argument"};
    case cudaErrorInvalidDevice:
      return {"cudaErrorInvalidDevice", "invalid device ordinal"};
    case cudaErrorNotReady:
      return {"cudaErrorNotReady", "device not ready"};
    case cudaErrorPeerAccessAlreadyEnabled:
      return {"cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"};
    case cudaErrorTooManyPeers:
      return {"cudaErrorTooManyPeers", "peer mapping resources exhausted"};
    case cudaErrorNotSupported:
      return {"cudaErrorNotSupported", "operation not supported"};
  }
  return {"unrecognized error code", "unrecognized error code"};
}

constexpr int kProcessors = 132;
constexpr int kMostPeers = 8;  // for each device, without NVSwitch

}  // namespace

int current_device() { return chosen_device; }

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return text_of(error).text; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  const Call call;
  *count = call->plan.devices;
  return report(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  const Call call;
  if (device < 0 || device >= call->plan.devices) return report(cudaErrorInvalidDevice);
  if (call->opened_devices.insert(device).second) call->check_driver("cudaSetDevice");
  chosen_device = device;
  return report(cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
  *device = chosen_device;
  return report(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Call call;
  if (device < 0 || device >= call->plan.devices) return report(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "a stand-in, on the host");
  properties->totalGlobalMem = call->plan.device_nbytes;
  properties->sharedMemPerBlock = kSharedMemory;
  properties->sharedMemPerBlockOptin = kMostSharedMemory;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = kProcessors;
  return report(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const Call call;
  if (device < 0 || device >= call->plan.devices) return report(cudaErrorInvalidDevice);
  const std::map<cudaDeviceAttr, int> values = {
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(kSharedMemory)},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMultiProcessorCount, kProcessors},
      {cudaDevAttrComputeCapabilityMajor, 9},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(kMostSharedMemory)},
  };
  const auto found = values.find(attribute);
  if (found == values.end()) return report(cudaErrorInvalidValue);
  *value = found->second;
  return report(cudaSuccess);
}

namespace {

bool can_reach_peers(const cuda_on_host::Plan& plan, int device) {
  return plan.has_peer_access && device != plan.without_peers;
}

}  // namespace

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  const Call call;
  for (const int each : {device, peer}) {
    if (each < 0 || each >= call->plan.devices) return report(cudaErrorInvalidDevice);
  }
  *can = device != peer && can_reach_peers(call->plan, device) ? 1 : 0;
  return report(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  const Call call;
  call->check_driver("cudaDeviceEnablePeerAccess");
  const int own = current_device();
  if (peer < 0 || peer >= call->plan.devices || peer == own) return report(cudaErrorInvalidDevice);
  if (flags != 0 || !can_reach_peers(call->plan, own)) return report(cudaErrorInvalidValue);
  if (call->peers.contains({own, peer})) return report(cudaErrorPeerAccessAlreadyEnabled);
  const auto of_own = [&](const auto& pair) { return pair.first == own; };
  if (std::ranges::count_if(call->peers, of_own) == kMostPeers) {
    return report(cudaErrorTooManyPeers);
  }
  call->peers.emplace(own, peer);
  return report(cudaSuccess);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  const Call call;
  if (device < 0 || device >= call->plan.devices) return report(cudaErrorInvalidDevice);
  *pool = reinterpret_cast<cudaMemPool_t>(std::intptr_t{device} + 1);
  return report(cudaSuccess);
}

namespace {

int owner_of(cudaMemPool_t pool) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(pool) - 1);
}

}  // namespace

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const Call call;
  if (attribute != cudaMemPoolAttrReleaseThreshold) return report(cudaErrorInvalidValue);
  std::memcpy(&call->pools[owner_of(pool)].keeps, value, sizeof(std::uint64_t));
  return report(cudaSuccess);
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* devices,
                                 std::size_t count) {
  const Call call;
  call->check_driver("cudaMemPoolSetAccess");
  const int owner = owner_of(pool);
  for (std::size_t i = 0; i < count; ++i) {
    const int device = devices[i].location.id;
    if (device < 0 || device >= call->plan.devices) return report(cudaErrorInvalidDevice);
    if (!can_reach_peers(call->plan, device)) return report(cudaErrorInvalidValue);
    if (devices[i].flags == cudaMemAccessFlagsProtReadWrite) {
      call->pool_peers.emplace(device, owner);
    } else {
      call->pool_peers.erase({device, owner});
    }
  }
  return report(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return report(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize() {
  const Call call;
  ++call->waits;
  for (const auto& stream : call->streams()) {
    if (stream->device == current_device()) {
      call->wait_for(*stream, "the host, in cudaDeviceSynchronize, for " + stream->name());
    }
  }
  call->release_pools("cudaDeviceSynchronize");
  return report(cudaSuccess);
}
