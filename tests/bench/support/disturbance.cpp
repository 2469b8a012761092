#include "bench/support/disturbance.h"

#include "base/check.h"
#include "bench/support/peak.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <thread>
#include <vector>

namespace fsdp::bench {

void use_first_cores(int count) {
  cpu_set_t allowed, first;
  CPU_ZERO(&allowed);
  CPU_ZERO(&first);
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&first) < count; ++core) {
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &first);
  }
  FSDP_CHECK(CPU_COUNT(&first) == count, "this needs {} cores, and may use {}", count,
             CPU_COUNT(&allowed));
  FSDP_CHECK(sched_setaffinity(0, sizeof first, &first) == 0, "sched_setaffinity() failed");
}

BusyLoop::BusyLoop() : process_(fork()) {
  FSDP_CHECK(process_ >= 0, "fork() failed");
  if (process_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  use_first_cores(1);
  for (std::atomic<unsigned> turns = 0;;) ++turns;
}

BusyLoop::~BusyLoop() {
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

double seconds_of_independent_pieces(int threads) {
  constexpr int kPieces = 8000, kTimes = 2000;
  std::atomic<int> next = 0;
  const auto work = [&] {
    alignas(64) std::array<std::byte, kMultiplyAddBytes> result;
    while (next++ < kPieces) multiply_add(kTimes, result.data());
  };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace fsdp::bench
