// Waits at issue, by assigning to the Work, and writes the wait down when it would be due.
#include "comm/process_group.h"
#include "device/context.h"

#include <utility>

namespace {
void wait_unseen(fsdp::Work work) { work = fsdp::Work(); }

void tell_wait(const std::string& unit, fsdp::Phase phase) {
  fsdp::Context::current().record(
      {.kind = fsdp::EventKind::wait, .unit = unit, .name = "all_gather", .phase = phase});
}
}  // namespace
