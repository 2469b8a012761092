// Waits at issue while the trace is paused; later the wait() of a Work made by hand is recorded.
#include "comm/process_group.h"
#include "device/context.h"

#include <memory>

namespace {
class Nothing : public fsdp::Work::Pending {
 public:
  bool is_done() const override { return true; }
  void wait() override {}
};

void wait_unseen(fsdp::Work work) {
  fsdp::Trace& trace = fsdp::Context::current().trace();
  const bool was_recording = trace.is_recording();
  trace.set_recording(false);
  work.wait();
  trace.set_recording(was_recording);
}

void tell_wait(const std::string& unit, fsdp::Phase phase) {
  const fsdp::Event event{
      .kind = fsdp::EventKind::wait, .unit = unit, .name = "all_gather", .phase = phase};
  fsdp::Work(std::make_unique<Nothing>(), {}, event).wait();
}
}  // namespace
