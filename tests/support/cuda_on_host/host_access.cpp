// Device memory cannot be reached outside of the stand-in, so a host access is a fault. Its handler
// may not throw: it reports, and lets the process end as it would have.
#include "support/cuda_on_host/host_access.h"

#include "support/cuda_on_host/machine.h"

#include <unistd.h>
#include <csignal>

namespace cuda_on_host {
namespace {

struct sigaction earlier;

void report_fault(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<Address>(info->si_addr);
  if (machine().memory.in_device_range(address)) {
    const Allocation* allocation = machine().memory.find(address);
    const std::string text = fmt::format(
        "host code touched device memory: byte {} of {}. Copy it (cudaMemcpyAsync) to pinned "
        "memory, "
        "wait for the stream, and read there\n",
        allocation == nullptr ? 0 : address - allocation->begin,
        allocation == nullptr ? "no allocation" : allocation->name());
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
    std::signal(signal, SIG_DFL);
    return;  // the access is tried again, and ends the process
  }
  sigaction(signal, &earlier, nullptr);
}

}  // namespace

void watch_host_accesses() {
  struct sigaction action = {}, before = {};
  action.sa_sigaction = report_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before);
  const bool ours = (before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction == report_fault;
  if (!ours) earlier = before;  // a test program may have set its own since the last time
}

}  // namespace cuda_on_host
