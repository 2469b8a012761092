/// @file
/// How a test drives the stand-in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace cuda_on_host {

/// When the work of a stream runs. A program is right only if it is right in every mode.
enum class Mode {
  lazy,    ///< not before something waits for it, and then no more than that needs
  eager,   ///< as soon as its edges allow
  random,  ///< by the seed, a few operations of any stream after each call
};

struct Plan {
  Mode mode = Mode::lazy;
  /// Orders the threads of a block, the blocks of a grid and (Mode::random) the streams. 0 is the
  /// natural order, 1 the reverse; all others shuffle.
  std::uint64_t seed = 0;
  int devices = 8;
  std::size_t device_nbytes = std::size_t{1} << 30;
  bool has_peer_access = true;  ///< devices can reach each other's memory
  int without_peers = -1;       ///< but for this one, which reaches no other's
  /// Which of the machine's cards they are, by number, where NCCL compares them between processes.
  /// Empty: device i is card i.
  std::vector<int> cards{};
  /// For operands of more than 2^31 elements: of each grid only the first and the last block run,
  /// and memory is zero, so that it takes no page before it is written.
  bool runs_ends_only = false;
};

/// A process's devices, as new. One at a time; an earlier one's pointers and streams are void.
/// Without one, a program has the devices of the plan that the variable CUDA_ON_HOST names.
class Session {
 public:
  explicit Session(const Plan& plan);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  /// Call it last, since a destructor cannot throw: throws the first Misuse, if there was one.
  /// Memory that was not freed is a Misuse as well, and so is work that nothing has waited for.
  void finish();
};

/// How often the host has waited for a device since the Session began: cudaStreamSynchronize,
/// cudaEventSynchronize, cudaDeviceSynchronize, cudaMemcpy, cudaMemset, cudaFree and cudaFreeHost.
std::int64_t host_waits();

/// Bytes that kernels have moved from and to devices' memory since the Session began.
struct Traffic {
  std::int64_t loaded = 0, stored = 0;
};
Traffic traffic();

/// How often each kernel has been launched since the Session began, by the kernel's name. Copies
/// and fills of CUDA itself are none; a product of cuBLASLt is "cublasLtMatmul".
std::map<std::string, std::int64_t> launches();

/// How often cudaFuncSetAttribute has been called since the Session began.
std::int64_t attributes_set();

/// The devices that cudaSetDevice has named since the Session began. On a card each of them has
/// lost some hundred megabytes to this process.
std::set<int> opened_devices();

/// Calls `watch` with the name of each call that may wait for a device while it holds the driver's
/// lock (docs/cuda_stand_in.md lists them), and with "ncclGroupEnd" whenever that has given a
/// collective to a device of this process, and not yet to all of them. Null: nobody.
void watch_driver(std::function<void(std::string_view call)> watch);

/// Cuts the links between devices: every communicator of NCCL reports ncclRemoteError, and what has
/// not run yet never does, unless it is aborted.
void break_links();

}  // namespace cuda_on_host
