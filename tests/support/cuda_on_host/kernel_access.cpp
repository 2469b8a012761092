// The loads and stores of kernels. Their files are compiled with -fsanitize=thread, which calls
// __tsan_read4 and the like before each; tracing.cpp defines these calls.
#include "support/cuda_on_host/block.h"
#include "support/cuda_on_host/machine.h"
#include "support/cuda_on_host/shared_memory.h"
#include "support/cuda_on_host/symbols.h"

#include <utility>

alignas(1024) constinit thread_local unsigned char dynamic_shared_memory
    [cuda_on_host::kMostSharedMemory] = {};

namespace cuda_on_host {

void Grid::access(const void* pointer, std::size_t nbytes, bool write, bool atomic) {
  if (threads_[current_].fiber->on_stack(pointer)) return;
  running_grid() = nullptr;  // what follows is no access of the kernel
  std::string wrong = check_access(reinterpret_cast<Address>(pointer), nbytes, write, atomic);
  if (!wrong.empty()) fail_thread(std::move(wrong));
  running_grid() = this;
}

std::string Grid::check_access(Address address, std::size_t nbytes, bool write, bool atomic) {
  Machine& all = machine();
  if (all.memory.in_device_range(address)) {
    (write ? all.traffic.stored : all.traffic.loaded) += static_cast<std::int64_t>(nbytes);
    const int own = launch_.config.stream->device;
    const Allocation* allocation = machine().memory.find(address);
    const int other = allocation == nullptr ? own : allocation->device;
    const bool is_of_pool = allocation != nullptr && allocation->is_of_pool;
    const auto& reachable = is_of_pool ? all.pool_peers : all.peers;
    if (other != own && !reachable.contains({own, other})) {
      return fmt::format("{} {}, which device {} cannot reach: {} was not called {}",
                         write ? "writes" : "reads", allocation->name(), own,
                         is_of_pool ? "cudaMemPoolSetAccess" : "cudaDeviceEnablePeerAccess",
                         is_of_pool ? "for its pool" : "there");
    }
    return touch(machine().memory, all.operations,
                 {operation_, address, nbytes, write, atomic, position()});
  }
  if (is_thread_local(address)) return access_shared(address, nbytes, write, atomic);
  if (!write && is_in_program(address)) return {};
  const auto arguments = reinterpret_cast<Address>(launch_.arguments.get());
  if (address >= arguments && address < arguments + launch_.arguments_nbytes) return {};
  return fmt::format("{} host memory at {:#x}; pass device memory", write ? "writes" : "reads",
                     address);
}

std::string Grid::access_shared(Address address, std::size_t nbytes, bool write, bool atomic) {
  const auto dynamic = reinterpret_cast<Address>(dynamic_shared_memory);
  const bool is_dynamic = address >= dynamic && address < dynamic + kMostSharedMemory;
  const auto array = is_dynamic ? std::nullopt : shared_array_at(address);
  std::size_t size = 0;
  Address begin = 0;
  if (is_dynamic) {
    begin = dynamic;
    size = launch_.config.dynamicSmemBytes;
  } else if (array) {
    begin = array->begin;
    size = array->nbytes;
  } else {
    const auto coordinates = [&](const auto& variable) {
      const auto at = reinterpret_cast<Address>(&variable);
      return !write && address >= at && address < at + sizeof variable;
    };
    if (coordinates(threadIdx) || coordinates(blockIdx) || coordinates(blockDim) ||
        coordinates(gridDim)) {
      return {};
    }
    const auto before = last_shared_array_before(address);
    return fmt::format("{} {} bytes outside of every __shared__ array{}",
                       write ? "writes" : "reads", nbytes,
                       before ? fmt::format(", {} bytes behind the begin of {}, which has {} bytes",
                                            address - before->begin, before->name(), before->nbytes)
                              : "");
  }
  const std::size_t offset = address - begin;
  const char* verb = write ? "writes" : "reads";
  const auto name = [&] { return array ? array->name() : "dynamic shared memory"; };
  if (offset + nbytes > size) {
    return fmt::format("{} bytes {} to {} of {}, which has {} bytes", verb, offset,
                       offset + nbytes - 1, name(), size);
  }
  auto* line = &shared_[address / kLine];
  for (std::size_t i = 0; i < nbytes;) {
    if (i > 0 && (address + i) % kLine == 0) line = &shared_[(address + i) / kLine];
    const std::size_t in_cell = (address + i) % Cell::kNbytes;
    const std::size_t count = std::min(nbytes - i, Cell::kNbytes - in_cell);
    const auto mask = static_cast<std::uint8_t>(((1U << count) - 1) << in_cell);
    const std::string wrong =
        touch_shared((*line)[(address + i) % kLine / Cell::kNbytes],
                     {operation_, address + i, count, write, atomic, position()}, mask);
    if (!wrong.empty()) return fmt::format("{} byte {} of {}; {}", verb, offset + i, name(), wrong);
    i += count;
  }
  return {};
}

void block_barrier(Site site) {
  if (running_grid() == nullptr) fail("{} was called outside of a kernel", site.function);
  running_grid()->wait(0, nullptr, 0, site);
}

const Slot* warp_barrier(std::uint32_t mask, const void* shown, std::size_t nbytes, Site site) {
  if (running_grid() == nullptr) fail("{} was called outside of a kernel", site.function);
  running_grid()->wait(mask, shown, nbytes, site);
  return running_grid()->seen();
}

int lane() {
  return running_grid() == nullptr ? 0 : static_cast<int>(running_grid()->current() % 32);
}

int lane_of(std::uint32_t mask, int source, Site site) {
  if (source >= 0 && source < 32 && (mask >> source & 1U) != 0) return source;
  std::string wrong =
      fmt::format("reads lane {} in {} at {}:{}, but the mask {:#010x} does not name that lane",
                  source, site.function, site.file, site.line, mask);
  running_grid()->fail_thread(std::move(wrong));
}

void note_atomic(void* address, std::size_t nbytes) {
  if (running_grid() == nullptr) fail("an atomic was called outside of a kernel");
  running_grid()->access(address, nbytes, true, true);
}

void check_alignment(const void* address, std::size_t alignment) {
  if (reinterpret_cast<Address>(address) % alignment == 0) return;
  std::string wrong = fmt::format(
      "moves a vector of {} bytes from or to {}, which is no multiple of that", alignment, address);
  if (running_grid() == nullptr) fail("host code {}", wrong);
  running_grid()->fail_thread(std::move(wrong));
}

}  // namespace cuda_on_host
