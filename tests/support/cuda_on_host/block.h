/// @file
/// Runs the blocks of a grid, one after the other; the threads of a block are fibers that take
/// turns between barriers. Internal.
#pragma once

#include "support/cuda_on_host/fiber.h"
#include "support/cuda_on_host/include/cuda_runtime.h"
#include "support/cuda_on_host/memory.h"
#include "support/cuda_on_host/order.h"
#include "support/cuda_on_host/session.h"

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace cuda_on_host {

/// What cp_async has started.
struct Copy {
  void* to;
  const void* from;  ///< null: zeros
  std::size_t nbytes;
};

class Grid {
 public:
  Grid(const Launch& launch, std::string name, std::uint32_t operation);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;
  /// Throws Misuse if a thread did something wrong.
  void run(const Plan& plan, Random& random);

  // What the threads call.
  void wait(std::uint32_t mask, const void* shown, std::size_t nbytes, Site site);
  const Slot* seen() const { return threads_[current_].seen.data(); }
  unsigned current() const { return static_cast<unsigned>(current_); }
  /// Dynamic shared memory of the launch.
  std::size_t shared_nbytes() const { return launch_.config.dynamicSmemBytes; }
  /// Those of the current thread that it has not waited for.
  std::vector<Copy>& copies() { return threads_[current_].copies; }
  /// A load or store of the current thread.
  void access(const void* address, std::size_t nbytes, bool write, bool atomic);
  /// Ends the current thread, and the launch, with a Misuse that names both.
  /// Takes the message, since no destructor runs on the stack of the caller.
  [[noreturn]] void fail_thread(std::string&& message);

 private:
  enum class State { runs, waits, ended };
  static constexpr std::uint64_t kBlock = std::uint64_t{1} << 32U;  // beyond all masks of lanes
  struct Thread {
    std::unique_ptr<Fiber> fiber = std::make_unique<Fiber>();
    uint3 index = {};
    State state = State::runs;
    std::uint64_t mask = 0;  ///< whom it waits for: lanes of its warp, or kBlock
    Site site = {};
    Slot shown = {};
    std::array<Slot, 32> seen = {};
    std::vector<Copy> copies;
  };

  void run_block(std::size_t block, std::uint64_t seed, Random& random);
  bool release_warp(std::size_t first);
  bool release_block();
  [[noreturn]] void report_divergence();
  std::string describe(std::size_t thread) const;
  std::string where(std::size_t thread) const;
  std::string check_access(Address address, std::size_t nbytes, bool write, bool atomic);
  std::string access_shared(Address address, std::size_t nbytes, bool write, bool atomic);
  ThreadPosition position() const;

  const Launch& launch_;
  std::string name_;
  std::uint32_t operation_, number_;
  std::vector<Thread> threads_;
  std::size_t current_ = 0, block_ = 0;
  uint3 block_index_ = {};
  std::uint32_t block_epoch_ = 0;
  std::vector<std::uint32_t> warp_epochs_;
  static constexpr std::size_t kLine = 64;
  std::unordered_map<Address, std::array<Cell, kLine / Cell::kNbytes>> shared_;  // by address/kLine
  std::string failure_;
};

/// The grid that the calling thread runs; null outside of kernels.
Grid*& running_grid();

}  // namespace cuda_on_host
