#include "comm/cuda/peer_access.h"

#include "base/check.h"
#include "device/cuda/launch.h"

#include <cuda_runtime.h>

namespace fsdp::cuda {

void PeerAccess::enable(const RankDevice& device, const RankDevice& peer) {
  const int own = device.index(), other = peer.index();
  if (own == other) return;
  const std::lock_guard lock(mutex_);
  if (enabled_.contains({own, other})) return;
  int can = 0;
  require(cudaDeviceCanAccessPeer(&can, own, other), "cudaDeviceCanAccessPeer");
  FSDP_CHECK(can != 0,
             "cuda:{} cannot reach the memory of cuda:{}, so that sums between them cannot be "
             "canonical. Communicate by NCCL (parallel.device_collectives nccl, or device_data "
             "in code), or let all ranks share one device.",
             own, other);
  const cudaError_t answer = cudaDeviceEnablePeerAccess(other, 0);
  if (answer == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // or the next call would report it again
  } else {
    require(answer, "cudaDeviceEnablePeerAccess");
  }
  enabled_.insert({own, other});
}

}  // namespace fsdp::cuda
