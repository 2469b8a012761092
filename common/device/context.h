/// @file
/// @ingroup device
/// Context: everything that belongs to exactly one rank.
#pragma once

#include "base/clock.h"
#include "base/philox.h"
#include "base/trace.h"
#include "device/accelerator.h"
#include "device/allocator.h"
#include "device/memory_tracker.h"
#include "device/thread_pool.h"

#include <chrono>
#include <memory>
#include <optional>

namespace fsdp {

/// The state of one rank: its memory, its threads, its trace, its random stream and, on a fake
/// device, its clock. There are no globals: ranks may be threads of one process, each with its own
/// Context. Each thread has a current Context (ContextScope).
class Context {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    int threads = 1;  ///< threads a kernel may use (they spin between kernels
                      ///< if all ranks' threads have a core each)
    std::uint64_t seed = 0;
    Device device = kCpu;  ///< where tensors are made by default
    /// For tests: a CPU has a second memory space, kCpuHost, as if it were the host's.
    bool has_cpu_host = false;
    std::size_t fake_granularity = 1;  ///< sizes on `fake` are rounded up to it
    /// Memory of a CUDA device is reserved in segments of this size and more. For tests: 0 makes
    /// every block an allocation of its own.
    std::size_t segment_nbytes = std::size_t{2} << 20;
    /// Scratch of matrix products on a CUDA device, counted once as TEMP.
    std::size_t workspace_nbytes = std::size_t{32} << 20;
    std::optional<CostModel> cost_model =
        std::nullopt;  ///< if set, a virtual clock runs (device fake)
  };

  explicit Context(Options options);
  Context() : Context(Options{}) {}
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// This thread's context. A thread without a scope gets its own, with one thread and default
  /// options.
  static Context& current();
  /// The same, or null before first use and during thread exit.
  static Context* current_or_null();

  int rank() const { return options_.rank; }
  int world_size() const { return options_.world_size; }
  const Options& options() const { return options_; }

  Trace& trace() { return trace_; }
  MemoryTracker& tracker() { return *tracker_; }  ///< of the device's memory
  /// Of host(), counted apart. Beside a CUDA device, all memory of the host.
  MemoryTracker& host_tracker() { return *host_tracker_; }
  Generator& generator() { return generator_; }
  /// Made at first use. Its scratch is accounted once: TEMP, threads × kScratchBytes.
  ThreadPool& pool();
  /// The virtual clock, or null when time is real.
  VirtualClock* clock() { return clock_ ? &*clock_ : nullptr; }
  /// Null for meta. @throws Error for a device that this build or machine lacks.
  std::shared_ptr<Allocator> allocator(Device device);
  /// This rank's CUDA device, opened at first use: that of options().device, or else the first.
  /// @throws Error if the program or the machine has none.
  RankDevice& rank_device();
  /// The same, or null if it was not used yet.
  RankDevice* rank_device_or_null() { return rank_device_.get(); }
  /// What kernels keep with that device: null until they set it. It ends with the rank.
  KernelState* kernel_state() { return kernel_state_.get(); }
  void set_kernel_state(std::unique_ptr<KernelState> state);

  Device device() const { return device_; }
  void set_device(Device device) { device_ = device; }
  /// The memory of the host beside this rank's device: the device itself if they are one memory, as
  /// on the CPU. Beside a CUDA device it is pinned.
  Device host() const;

  /// The time stamp of an event that happens now (see Event::time).
  std::int64_t now() const;
  /// The time stamp of a moment that another thread may have noted; -1 if time is not real.
  std::int64_t time_of(std::chrono::steady_clock::time_point moment) const;
  /// Stamps an event with the time and appends it, if the trace records.
  void record(Event event);

 private:
  void open_rank_device(int index);

  Options options_;
  Device device_;
  Trace trace_;
  std::shared_ptr<MemoryTracker> tracker_;
  std::shared_ptr<MemoryTracker> host_tracker_;
  std::shared_ptr<Allocator> cpu_;
  std::shared_ptr<Allocator> cpu_host_;
  std::shared_ptr<Allocator> fake_;
  std::shared_ptr<Allocator> fake_host_;
  std::shared_ptr<RankDevice> rank_device_;
  std::shared_ptr<Allocator> cuda_;
  std::shared_ptr<Allocator> pinned_;
  std::unique_ptr<KernelState> kernel_state_;
  std::unique_ptr<ThreadPool> pool_;
  MemoryTracker::BlockId scratch_block_ = -1;
  Generator generator_;
  std::optional<VirtualClock> clock_;
  std::int64_t trace_begin_ns_ = 0;
};

/// Makes `context` this thread's current one.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* previous_;
};

/// Makes `device` the default device of new tensors in this scope.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Context& context_;
  Device previous_;
};

}  // namespace fsdp
