#include "device/context.h"

#include "base/check.h"
#include "device/event_observer.h"

#include <chrono>
#include <thread>
#include <utility>

namespace fsdp {
namespace {

std::int64_t nanoseconds_of(std::chrono::steady_clock::time_point moment) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch()).count();
}

std::int64_t monotonic_ns() { return nanoseconds_of(std::chrono::steady_clock::now()); }

// A plain pointer, so that it can still be read while the thread's objects are being destroyed.
thread_local Context* current_context = nullptr;

thread_local EventObserver* event_observer = nullptr;

// The context of a thread that never opened a scope.
struct DefaultContext {
  Context context;
  DefaultContext() { current_context = &context; }
  ~DefaultContext() {
    if (current_context == &context) current_context = nullptr;
  }
};

}  // namespace

Context::Context(Options options)
    : options_(options),
      device_(options.device),
      tracker_(std::make_shared<MemoryTracker>()),
      host_tracker_(std::make_shared<MemoryTracker>()),
      cpu_(make_cpu_allocator(options.device.type == DeviceType::cuda ? host_tracker_ : tracker_)),
      cpu_host_(make_cpu_allocator(host_tracker_)),
      fake_(make_fake_allocator(tracker_, options.fake_granularity)),
      fake_host_(make_fake_allocator(host_tracker_)),
      generator_(options.seed),
      trace_begin_ns_(monotonic_ns()) {
  FSDP_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
             "rank {} does not exist in a world of {}", options.rank, options.world_size);
  FSDP_CHECK(options.threads >= 1, "a rank needs at least one thread, not {}", options.threads);
  if (options.cost_model) clock_.emplace(*options.cost_model);
  for (const auto& tracker : {tracker_, host_tracker_}) {
    tracker->set_time_source([this] { return now(); });
  }
}

Context::~Context() {
  if (kernel_state_ != nullptr) set_kernel_state(nullptr);
  if (scratch_block_ >= 0) cpu_->tracker().on_free(scratch_block_);
  // Blocks that outlive this rank still tell the tracker.
  for (const auto& tracker : {tracker_, host_tracker_}) tracker->set_time_source({});
}

Context& Context::current() {
  if (current_context == nullptr) {
    static thread_local DefaultContext fallback;
    current_context = &fallback.context;
  }
  return *current_context;
}

Context* Context::current_or_null() { return current_context; }

ThreadPool& Context::pool() {
  if (pool_ == nullptr) {
    // Spinning while others wait for a core would only take it from them.
    const auto wanted = static_cast<unsigned>(options_.threads * options_.world_size);
    const bool spin = wanted <= std::thread::hardware_concurrency();
    pool_ = std::make_unique<ThreadPool>(options_.threads, spin);
    const std::size_t scratch = static_cast<std::size_t>(options_.threads) * kScratchBytes;
    scratch_block_ = cpu_->tracker().on_alloc(MemoryKind::temp, static_cast<std::int64_t>(scratch),
                                              std::make_shared<const Owner>(Owner{"", "scratch"}));
  }
  return *pool_;
}

std::shared_ptr<Allocator> Context::allocator(Device device) {
  switch (device.type) {
    case DeviceType::cpu:
      if (!device.is_host()) return cpu_;
      if (options_.device.type == DeviceType::cuda) rank_device();
      return pinned_ != nullptr ? pinned_ : cpu_host_;
    case DeviceType::fake:
      return device.is_host() ? fake_host_ : fake_;
    case DeviceType::meta:
      return nullptr;
    case DeviceType::cuda:
      open_rank_device(device.index);
      return cuda_;
  }
  fail("unknown device type number {}", static_cast<int>(device.type));
}

void Context::open_rank_device(int index) {
  if (rank_device_ != nullptr) {
    FSDP_CHECK(rank_device_->index() == index,
               "rank {} uses the device cuda:{}, and cannot use cuda:{} as well: a rank has one",
               rank(), rank_device_->index(), index);
    return;
  }
  Accelerator* const all = accelerator();
  FSDP_CHECK(
      all != nullptr,
      "the device {} was asked for, but this program was linked without CUDA. Use the device "
      "cpu, or a program that is linked with CUDA.",
      to_string(Device{DeviceType::cuda, index}));
  std::shared_ptr<RankDevice> device = all->open(index);
  cuda_ = all->make_allocator(device, tracker_, options_.segment_nbytes);
  pinned_ = all->make_pinned_allocator(device, host_tracker_);
  rank_device_ = std::move(device);
}

RankDevice& Context::rank_device() {
  if (rank_device_ == nullptr) {
    open_rank_device(options_.device.type == DeviceType::cuda ? options_.device.index : 0);
  }
  return *rank_device_;
}

void Context::set_kernel_state(std::unique_ptr<KernelState> state) {
  rank_device().set_kernel_state(state.get());
  kernel_state_ = std::move(state);
}

Device Context::host() const {
  if (device_.type == DeviceType::cuda) return kCpuHost;
  if (device_.type == DeviceType::fake) return kFakeHost;
  if (device_.type == DeviceType::cpu && options_.has_cpu_host) return kCpuHost;
  return device_;
}

std::int64_t Context::now() const {
  return clock_ ? clock_->now() : monotonic_ns() - trace_begin_ns_;
}

std::int64_t Context::time_of(std::chrono::steady_clock::time_point moment) const {
  return clock_ ? -1 : nanoseconds_of(moment) - trace_begin_ns_;
}

void Context::record(Event event) {
  if (event_observer != nullptr) event_observer->on_event(event);
  if (!trace_.is_recording()) return;
  event.time = now();
  trace_.record(std::move(event));
}

ContextScope::ContextScope(Context& context) : previous_(std::exchange(current_context, &context)) {
  if (RankDevice* device = context.rank_device_or_null()) device->activate();
}
ContextScope::~ContextScope() {
  current_context = previous_;
  if (previous_ == nullptr) return;
  if (RankDevice* device = previous_->rank_device_or_null()) device->activate();
}

DeviceScope::DeviceScope(Device device)
    : context_(Context::current()), previous_(context_.device()) {
  context_.set_device(device);
}
DeviceScope::~DeviceScope() { context_.set_device(previous_); }

EventObserverScope::EventObserverScope(EventObserver& observer) {
  FSDP_CHECK(event_observer == nullptr,
             "this thread's events already have an observer, which cannot be replaced");
  event_observer = &observer;
}
EventObserverScope::~EventObserverScope() { event_observer = nullptr; }

}  // namespace fsdp
