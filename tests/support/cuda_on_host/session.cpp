#include "support/cuda_on_host/session.h"

#include "support/cuda_on_host/environment.h"
#include "support/cuda_on_host/host_access.h"
#include "support/cuda_on_host/machine.h"

namespace cuda_on_host {

Session::Session(const Plan& plan) {
  const std::lock_guard lock(machine().mutex);
  machine().reset(with_visible_cards(plan));
  watch_host_accesses();
}

Session::~Session() {
  const std::lock_guard lock(machine().mutex);
  machine().reset(with_visible_cards({}));
}

void Session::finish() {
  const Call call;
  for (const auto& stream : call->streams()) {
    if (!stream->queue.empty()) {
      fail("nothing has waited for {}, which has not run on {}", stream->queue.front().what,
           stream->name());
    }
  }
  check_communicators();
  const std::vector<const Allocation*> live = call->memory.live();
  if (!live.empty()) fail("{} was never freed", live.front()->name());
}

void watch_driver(std::function<void(std::string_view)> watch) {
  const std::lock_guard lock(machine().mutex);
  machine().driver_watch = std::move(watch);
}

Traffic traffic() {
  const std::lock_guard lock(machine().mutex);
  return machine().traffic;
}

std::map<std::string, std::int64_t> launches() {
  const std::lock_guard lock(machine().mutex);
  return machine().launches;
}

std::int64_t attributes_set() {
  const std::lock_guard lock(machine().mutex);
  return machine().attributes_set;
}

std::set<int> opened_devices() {
  const std::lock_guard lock(machine().mutex);
  return machine().opened_devices;
}

std::int64_t host_waits() {
  const std::lock_guard lock(machine().mutex);
  return machine().waits;
}

}  // namespace cuda_on_host
