#include "support/cuda_on_host/machine.h"

#include "support/cuda_on_host/environment.h"
#include "support/cuda_on_host/host_access.h"

#include <cstdlib>
#include <string_view>

namespace cuda_on_host {
namespace {

/// Makes the thread's end known: nobody may wait for a thread that has ended.
struct Membership {
  bool joined = false;
  ~Membership() {
    if (!joined) return;
    const std::lock_guard lock(machine().mutex);
    machine().leave_thread(std::this_thread::get_id());
  }
};
thread_local Membership membership;

}  // namespace

Machine& machine() {
  // Kept until the process ends, for threads that end late.
  static Machine& only = *[] {
    const Plan plan = plan_of_environment();
    auto* const made = new Machine;
    made->reset(plan);
    watch_host_accesses();
    return made;
  }();
  return only;
}

[[noreturn]] void fail_with(const std::string& message) {
  Machine& all = machine();
  if (all.failure.empty()) all.failure = message;
  leave_other_processes();
  all.notify();
  throw Misuse(message);
}

Call::Call() : lock_(machine().mutex) {
  Machine& all = machine();
  if (!all.failure.empty()) throw Misuse(all.failure);
  if (all.loads_kernels_first) return;
  const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  all.loads_kernels_first = loading != nullptr && std::string_view(loading) == "EAGER";
}

void Machine::reset(const Plan& new_plan) {
  plan = new_plan;
  random = Random(new_plan.seed);
  failure.clear();
  peers.clear();
  pool_peers.clear();
  pools.clear();
  memory.reset();
  operations.assign(1, {});  // index 0 means none
  host = {};
  host.set(0, 1);
  waits = 0;
  traffic = {};
  launches.clear();
  attributes_set = 0;
  opened_devices.clear();
  loads_kernels_first.reset();
  half_launched.clear();
  streams_.clear();
  events_.clear();
  components_ = 1;
  stuck_.clear();
  threads_.clear();
  forget_communicators();
}

void Machine::check_driver(std::string_view call) const {
  if (driver_watch) driver_watch(call);
  if (half_launched.empty()) return;
  fail(
      "{} was called while {}: it may wait for that device, where a kernel waits for those that "
      "are "
      "not launched yet, and they for a lock of the driver that it holds",
      call, half_launched);
}

void Machine::release_pools(std::string_view synchronization) {
  for (auto& [device, pool] : pools) {
    if (pool.unused <= pool.keeps) continue;
    pool.unused = pool.keeps;
    check_driver(fmt::format("{}, which gives memory of a pool back,", synchronization));
  }
}

void Machine::let_others_in(std::unique_lock<std::mutex>& lock, const std::string& launch) {
  half_launched = launch;
  lock.unlock();
  if (driver_watch) driver_watch("ncclGroupEnd");
  std::this_thread::yield();
  lock.lock();
  half_launched.clear();
  if (!failure.empty()) throw Misuse(failure);
}

CUstream_st* Machine::new_stream(unsigned flags, int priority, int device) {
  streams_.push_back(std::make_unique<CUstream_st>());
  CUstream_st& made = *streams_.back();
  made.number = static_cast<int>(streams_.size());
  made.device = device;
  made.flags = flags;
  made.priority = priority;
  made.component = components_++;
  return &made;
}

CUevent_st* Machine::new_event(unsigned flags, int device) {
  events_.push_back(std::make_unique<CUevent_st>());
  events_.back()->number = static_cast<int>(events_.size());
  events_.back()->device = device;
  events_.back()->flags = flags;
  return events_.back().get();
}

CUstream_st& Machine::check(cudaStream_t stream, const char* call) {
  const auto value = reinterpret_cast<Address>(stream);
  if (value <= 2) {
    fail(
        "{} was called with a default stream; make a stream (cudaStreamCreateWithFlags), and pass "
        "it to every call",
        call);
  }
  for (const auto& each : streams_) {
    if (each.get() != stream) continue;
    if (each->destroyed) fail("{} was called with {}, which was destroyed", call, each->name());
    return *stream;
  }
  fail("{} was called with a stream that this session has not made", call);
}

CUevent_st& Machine::check(cudaEvent_t event, const char* call) {
  for (const auto& each : events_) {
    if (each.get() != event) continue;
    if (each->destroyed) fail("{} was called with {}, which was destroyed", call, each->name());
    return *event;
  }
  fail("{} was called with an event that this session has not made", call);
}

std::uint32_t Machine::add_operation(std::string what, CUstream_st* stream) {
  Operation made{std::move(what), stream != nullptr ? stream->component : 0, 0, host};
  const std::uint32_t now = host.at(0);
  if (stream != nullptr) {
    stream->clock.join(host);
    stream->clock.set(stream->component, stream->clock.at(stream->component) + 1);
    made.clock = stream->clock;
  }
  made.time = made.clock.at(made.component);
  host.set(0, now + 1);
  operations.push_back(std::move(made));
  return static_cast<std::uint32_t>(operations.size() - 1);
}

void touch_or_fail(std::uint32_t operation, const void* begin, std::size_t nbytes, bool write) {
  const auto address = reinterpret_cast<Address>(begin);
  Machine& all = machine();
  if (!all.memory.in_device_range(address) && !all.memory.in_pinned_range(address)) return;
  const std::string wrong =
      touch(all.memory, all.operations, {operation, address, nbytes, write, false, {}});
  if (!wrong.empty()) fail("{} {}", all.operations[operation].what, wrong);
}

void Machine::join_thread() {
  membership.joined = true;
  threads_.insert(std::this_thread::get_id());
}

void Machine::leave_thread(std::thread::id id) {
  threads_.erase(id);
  stuck_.erase(id);
  notify();
}

void Machine::notify() {
  ++generation_;
  changed_.notify_all();
}

void Machine::wait_for_ranks(const std::function<bool()>& done) {
  while (!done()) {
    const std::uint64_t seen = generation_;
    changed_.wait(mutex, [&] { return generation_ != seen; });
    if (!failure.empty()) throw Misuse(failure);
  }
}

void Machine::sleep(const std::string& what) {
  const std::thread::id me = std::this_thread::get_id();
  stuck_[me] = {generation_, what};
  bool others_go_on = other_processes_go_on();
  for (const std::thread::id& thread : threads_) {
    const auto found = stuck_.find(thread);
    others_go_on |= found == stuck_.end() || found->second.first != generation_;
  }
  if (!others_go_on) {
    std::string waits_for;
    for (const auto& [thread, each] : stuck_) waits_for += "\n  " + each.second;
    fail("deadlock: nothing can run any further, and these wait:{}{}", waits_for,
         text_of_lost_processes());
  }
  const std::uint64_t seen = generation_;
  changed_.wait(mutex, [&] { return generation_ != seen; });
  stuck_.erase(me);
  if (!failure.empty()) throw Misuse(failure);
}

}  // namespace cuda_on_host

std::string CUstream_st::name() const {
  return fmt::format("stream {} of device {}", number, device);
}
std::string CUevent_st::name() const { return fmt::format("event {}", number); }
