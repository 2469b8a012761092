/// @file
/// Ranks that are threads, with tensors on the stand-in's devices.
#pragma once

#include "comm/world.h"
#include "cuda_stand_in/plans.h"

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

namespace cuda_test {

inline const fsdp::Label kLabel{"unit", fsdp::Phase::forward};

/// Whether all ranks share the first device, or each has its own.
enum class Devices { shared, own };

/// Whether there is a card for each rank: always on the stand-in, unless CUDA_ON_HOST_CARDS says
/// otherwise.
inline bool have_cards(int ranks) {
  int cards = 0;
  return cudaGetDeviceCount(&cards) == cudaSuccess && cards >= ranks;
}

/// Whether there are, and each reaches the memory of all others, as canonical sums need it: not on
/// every machine with several cards.
inline bool have_peers(int ranks) {
  if (!have_cards(ranks)) return false;
  for (int device = 0; device < ranks; ++device) {
    for (int peer = 0; peer < ranks; ++peer) {
      int can = 0;
      if (device == peer) continue;
      if (cudaDeviceCanAccessPeer(&can, device, peer) != cudaSuccess || can == 0) return false;
    }
  }
  return true;
}

/// Where so many ranks can add canonically.
inline std::vector<Devices> placements(int ranks) {
  if (have_peers(ranks)) return {Devices::shared, Devices::own};
  return {Devices::shared};
}

/// Options of a world whose ranks compute on the stand-in's devices.
inline fsdp::RankOptions options_of(int world_size, Devices devices, fsdp::DeviceData data) {
  fsdp::RankOptions options;
  options.world_size = world_size;
  options.device_data = data;
  for (int index = 0; index < (devices == Devices::own ? world_size : 1); ++index) {
    options.devices.push_back({fsdp::DeviceType::cuda, index});
  }
  return options;
}

/// `body` with new tensors on the rank's device, each in an allocation of its own: so no byte that
/// is used too early or too late is one that holds something else by then.
inline std::function<void(fsdp::ProcessGroup&)> with_exact_memory(
    const std::function<void(fsdp::ProcessGroup&)>& body) {
  return [&body](fsdp::ProcessGroup& group) {
    fsdp::Context::Options own = fsdp::Context::current().options();
    own.segment_nbytes = 0;
    fsdp::Context context(own);
    const fsdp::ContextScope scope(context);
    body(group);
  };
}

/// Runs `body` on every rank, with exact memory, in a Session of its own, which must end well.
inline void run_on_devices(const Plan& plan, int world_size, Devices devices, fsdp::DeviceData data,
                           const std::function<void(fsdp::ProcessGroup&)>& body) {
  Session session(plan);
  fsdp::run_ranks(options_of(world_size, devices, data), with_exact_memory(body));
  session.finish();
}

/// The message that run_ranks throws in this process; the Session must end well all the same.
inline std::string error_of(const Plan& plan, const fsdp::RankOptions& options,
                            const std::function<void(fsdp::ProcessGroup&)>& body) {
  Session session(plan);
  const std::string message =
      message_of<fsdp::Error>([&] { fsdp::run_ranks(options, with_exact_memory(body)); });
  CHECK_NOTHROW(session.finish());
  return message;
}

}  // namespace cuda_test
