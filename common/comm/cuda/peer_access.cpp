#include "comm/cuda/peer_access.h"

#include "base/check.h"
#include "device/cuda/driver_gate.h"
#include "device/cuda/launch.h"

#include <cuda_runtime.h>

#include <mutex>

namespace fsdp::cuda {

bool PeerAccess::try_enable(const RankDevice& device, const RankDevice& peer) {
  const int own = device.index(), other = peer.index();
  if (own == other) return true;
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = known_.try_emplace({own, other}, false);
  if (!is_new) return known->second;
  int can = 0;
  require(cudaDeviceCanAccessPeer(&can, own, other), "cudaDeviceCanAccessPeer");
  if (can == 0) return false;
  const std::unique_lock alone(driver_gate());
  const cudaError_t answer = cudaDeviceEnablePeerAccess(other, 0);
  const bool is_refused = answer == cudaErrorTooManyPeers;
  if (is_refused || answer == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // or the next call would report it again
  } else {
    require(answer, "cudaDeviceEnablePeerAccess");
  }
  known->second = !is_refused;
  return known->second;
}

void PeerAccess::enable(const RankDevice& device, const RankDevice& peer) {
  FSDP_CHECK(try_enable(device, peer),
             "cuda:{} cannot reach the memory of cuda:{}, so that sums between them cannot be "
             "canonical. Communicate by NCCL (parallel.device_collectives nccl, or device_data "
             "in code), or let all ranks share one device.",
             device.index(), peer.index());
}

}  // namespace fsdp::cuda
