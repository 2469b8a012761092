#include "support/cuda_on_host/machine.h"

#include <algorithm>
#include <cstring>

namespace cuda_on_host {
namespace {

cudaError_t allocate(void** pointer, std::size_t nbytes, Space space, Allocation*& made) {
  Machine& all = machine();
  *pointer = nullptr;
  made = nullptr;
  if (nbytes == 0) return cudaSuccess;
  if (space == Space::device &&
      all.memory.live_nbytes(current_device()) + nbytes > all.plan.device_nbytes) {
    return cudaErrorMemoryAllocation;
  }
  made = &all.memory.allocate(space, nbytes, current_device(), all.plan.runs_ends_only);
  *pointer = reinterpret_cast<void*>(made->begin);
  return cudaSuccess;
}

/// The allocation that begins at `pointer`, for a call that frees it.
Allocation& to_free(void* pointer, Space space, const char* call) {
  Allocation* found = machine().memory.find(reinterpret_cast<Address>(pointer));
  if (found == nullptr || found->begin != reinterpret_cast<Address>(pointer) ||
      found->space != space) {
    fail("{} was called with {}, where no such allocation begins", call, pointer);
  }
  if (!found->freed_by.empty()) {
    fail("{} was called with {}, which {} has freed already", call, found->name(), found->freed_by);
  }
  return *found;
}

/// Frees at once. Work on the memory that has run must come before, by a wait of the host; work
/// that has not run yet finds the memory freed. Both are a Misuse: CUDA would wait for that work,
/// and a program that relies on it has a hidden wait.
cudaError_t free_now(void* pointer, Space space, const char* name) {
  const Call call;
  if (pointer == nullptr) return report(cudaSuccess);
  call->check_driver(name);
  ++call->waits;
  Allocation& allocation = to_free(pointer, space, name);
  const std::uint32_t operation = call->add_operation(name, nullptr);
  touch_or_fail(operation, pointer, allocation.nbytes, true);
  call->memory.release(allocation, name);
  return report(cudaSuccess);
}

void check_kind(const void* to, const void* from, cudaMemcpyKind kind, const char* call) {
  const Memory& memory = machine().memory;
  const bool to_device = memory.in_device_range(reinterpret_cast<Address>(to));
  const bool from_device = memory.in_device_range(reinterpret_cast<Address>(from));
  const auto actual = from_device ? (to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                                  : (to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost);
  if (kind != cudaMemcpyDefault && kind != actual) {
    fail("{} was called with kind {}, but its pointers make it kind {}", call,
         static_cast<int>(kind), static_cast<int>(actual));
  }
}

void check_asynchronous(const void* pointer, const char* call) {
  const Memory& memory = machine().memory;
  const auto address = reinterpret_cast<Address>(pointer);
  if (memory.in_device_range(address) || memory.in_pinned_range(address)) return;
  fail(
      "{} was called with pageable host memory at {}: CUDA may then wait, or not. Allocate it with "
      "cudaMallocHost",
      call, pointer);
}

struct Opened {
  Opened() { machine().memory.open(); }
  ~Opened() { machine().memory.close(); }
};

}  // namespace
}  // namespace cuda_on_host

using namespace cuda_on_host;

cudaError_t cudaMalloc(void** pointer, std::size_t nbytes) {
  const Call call;
  call->check_driver("cudaMalloc");
  Allocation* made = nullptr;
  return report(allocate(pointer, nbytes, Space::device, made));
}

cudaError_t cudaMallocHost(void** pointer, std::size_t nbytes, unsigned) {
  const Call call;
  call->check_driver("cudaMallocHost");
  Allocation* made = nullptr;
  return report(allocate(pointer, nbytes, Space::pinned, made));
}

cudaError_t cudaFree(void* pointer) { return free_now(pointer, Space::device, "cudaFree"); }
cudaError_t cudaFreeHost(void* pointer) { return free_now(pointer, Space::pinned, "cudaFreeHost"); }

cudaError_t cudaMallocAsync(void** pointer, std::size_t nbytes, cudaStream_t handle) {
  const Call call;
  CUstream_st& stream = call->check(handle, "cudaMallocAsync");
  call->check_driver("cudaMallocAsync");  // the pool may have to grow
  Allocation* made = nullptr;
  const cudaError_t error = allocate(pointer, nbytes, Space::device, made);
  if (made == nullptr) return report(error);
  made->live = false;
  made->is_of_pool = true;
  Machine::Pool& pool = call->pools[made->device];
  pool.unused -= std::min<std::uint64_t>(pool.unused, nbytes);
  const std::string what = "cudaMallocAsync on " + stream.name();
  const std::uint32_t operation = call->add_operation(what, &stream);
  call->issue(stream, {what,
                       [made, operation] {
                         made->live = true;
                         touch_or_fail(operation, reinterpret_cast<void*>(made->begin),
                                       made->nbytes, true);
                       },
                       nullptr, nullptr});
  return report(cudaSuccess);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t handle) {
  const Call call;
  CUstream_st& stream = call->check(handle, "cudaFreeAsync");
  if (pointer == nullptr) return report(cudaSuccess);
  Allocation* allocation = &to_free(pointer, Space::device, "cudaFreeAsync");
  const std::string what = "cudaFreeAsync on " + stream.name();
  const std::uint32_t operation = call->add_operation(what, &stream);
  call->issue(stream, {what,
                       [=] {
                         touch_or_fail(operation, pointer, allocation->nbytes, true);
                         machine().pools[allocation->device].unused += allocation->nbytes;
                         machine().memory.release(*allocation, what);
                       },
                       nullptr, nullptr});
  return report(cudaSuccess);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const Call call;
  *total = call->plan.device_nbytes;
  *free = *total - call->memory.live_nbytes(current_device());
  return report(cudaSuccess);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t nbytes, cudaMemcpyKind kind) {
  const Call call;
  check_kind(to, from, kind, "cudaMemcpy");
  const auto source = reinterpret_cast<Address>(from);
  if (call->memory.in_device_range(reinterpret_cast<Address>(to)) &&
      !call->memory.in_device_range(source) && !call->memory.in_pinned_range(source)) {
    fail(
        "cudaMemcpy from pageable host memory at {} may return before the bytes are on the device, "
        "and orders no stream after them: use cudaMemcpyAsync and pinned memory",
        from);
  }
  ++call->waits;
  const std::uint32_t operation = call->add_operation("cudaMemcpy", nullptr);
  const Opened opened;
  touch_or_fail(operation, from, nbytes, false);
  touch_or_fail(operation, to, nbytes, true);
  std::memmove(to, from, nbytes);
  return report(cudaSuccess);
}

cudaError_t cudaMemset(void* to, int value, std::size_t nbytes) {
  const Call call;
  ++call->waits;
  const std::uint32_t operation = call->add_operation("cudaMemset", nullptr);
  const Opened opened;
  touch_or_fail(operation, to, nbytes, true);
  std::memset(to, value, nbytes);
  return report(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t nbytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  const Call call;
  CUstream_st& stream = call->check(handle, "cudaMemcpyAsync");
  check_kind(to, from, kind, "cudaMemcpyAsync");
  check_asynchronous(to, "cudaMemcpyAsync");
  check_asynchronous(from, "cudaMemcpyAsync");
  const std::string what = fmt::format("cudaMemcpyAsync of {} bytes on {}", nbytes, stream.name());
  const std::uint32_t operation = call->add_operation(what, &stream);
  call->issue(stream, {what,
                       [=] {
                         touch_or_fail(operation, from, nbytes, false);
                         touch_or_fail(operation, to, nbytes, true);
                         std::memmove(to, from, nbytes);
                       },
                       nullptr, nullptr});
  return report(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t nbytes, cudaStream_t handle) {
  const Call call;
  CUstream_st& stream = call->check(handle, "cudaMemsetAsync");
  check_asynchronous(to, "cudaMemsetAsync");
  const std::string what = fmt::format("cudaMemsetAsync of {} bytes on {}", nbytes, stream.name());
  const std::uint32_t operation = call->add_operation(what, &stream);
  call->issue(stream, {what,
                       [=] {
                         touch_or_fail(operation, to, nbytes, true);
                         std::memset(to, value, nbytes);
                       },
                       nullptr, nullptr});
  return report(cudaSuccess);
}
