#include "comm/process_group.h"

#include <utility>

namespace fsdp {
namespace {

// However a Work comes to be waited for, the trace tells when.
void wait_and_record(Work::Pending& pending, Event& waited) {
  Context* context = Context::current_or_null();
  if (context == nullptr || !context->trace().is_recording()) return pending.wait();
  const std::int64_t begin = context->now();
  pending.wait();
  waited.duration = context->now() - begin;
  if (const auto ended = pending.ended()) waited.ended = context->time_of(*ended);
  context->record(std::move(waited));
}

// Leases must not end before the backend is through with the bytes, and nothing may escape from a
// destructor: an abort is reported by the next call on the group anyway.
void finish_quietly(Work::Pending& pending, Event& waited) noexcept {
  try {
    wait_and_record(pending, waited);
  } catch (...) {  // aborted, and drained: the buffers are ours again
  }
}

}  // namespace

Work::Work(std::unique_ptr<Pending> pending, std::vector<Storage::Lease> leases, Event waited)
    : pending_(std::move(pending)), leases_(std::move(leases)), waited_(std::move(waited)) {}

Work& Work::operator=(Work&& other) noexcept {
  if (this == &other) return *this;
  if (pending_) finish_quietly(*pending_, waited_);
  pending_ = std::move(other.pending_);
  leases_ = std::move(other.leases_);
  waited_ = std::move(other.waited_);
  return *this;
}

Work::~Work() {
  if (pending_) finish_quietly(*pending_, waited_);
}

bool Work::is_done() const { return !pending_ || pending_->is_done(); }

void Work::wait() {
  if (!pending_) return;
  // Taken out first: whether wait() returns or throws, this Work is finished and its leases end.
  const std::unique_ptr<Pending> pending = std::move(pending_);
  const std::vector<Storage::Lease> leases = std::move(leases_);
  wait_and_record(*pending, waited_);
}

}  // namespace fsdp
