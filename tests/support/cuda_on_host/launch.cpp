// cudaLaunchKernelEx: what can be checked at once is; the rest when the stream runs the kernel.
#include "support/cuda_on_host/block.h"
#include "support/cuda_on_host/machine.h"
#include "support/cuda_on_host/shared_memory.h"
#include "support/cuda_on_host/symbols.h"

#include <map>

namespace cuda_on_host {
namespace {

/// By device and kernel: the most dynamic shared memory that cudaFuncSetAttribute has allowed.
std::map<std::pair<int, const void*>, std::size_t>& allowed_shared_memory() {
  static auto& table = *new std::map<std::pair<int, const void*>, std::size_t>;
  return table;
}

bool valid(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  const auto allowed = allowed_shared_memory().find({config.stream->device, kernel});
  const std::size_t most =
      allowed == allowed_shared_memory().end() ? kSharedMemory : allowed->second;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y < 65536 && grid.z < 65536 &&
         block.x > 0 && block.y > 0 && block.z > 0 && block.z <= 64 &&
         std::size_t{block.x} * block.y * block.z <= 1024 && config.dynamicSmemBytes <= most;
}

}  // namespace

cudaError_t enqueue(Launch launch) {
  const Call call;
  CUstream_st& stream = call->check(launch.config.stream, "cudaLaunchKernelEx");
  const std::string kernel = name_of_function(launch.kernel);
  if (!valid(launch.config, launch.kernel)) return report(cudaErrorInvalidConfiguration);
  if (launch.config.numAttrs != 0) fail("{}: the stand-in has no launch attributes", kernel);
  if (stream.device != current_device()) {
    fail("{} was launched on {} while device {} is current", kernel, stream.name(),
         current_device());
  }
  for (const auto& [position, pointer] : launch.pointers) {
    const auto address = reinterpret_cast<Address>(pointer);
    if (pointer == nullptr) continue;
    const Allocation* allocation = call->memory.find(address);
    if (!call->memory.in_device_range(address) || allocation == nullptr) {
      fail("argument {} of {} is no device memory", position, kernel);
    }
    if (!allocation->freed_by.empty()) {
      fail("argument {} of {} lies in {}, which {} has freed", position, kernel, allocation->name(),
           allocation->freed_by);
    }
  }
  ++call->launches[kernel];
  const std::string what = fmt::format("{} on {}", kernel, stream.name());
  const std::uint32_t operation = call->add_operation(what, &stream);
  call->issue(stream, {what,
                       [launch, what, operation] {
                         Machine& all = machine();
                         Grid(launch, what, operation).run(all.plan, all.random);
                       },
                       nullptr, nullptr});
  return report(cudaSuccess);
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const Call call;
  ++call->attributes_set;
  if (value < 0 || static_cast<std::size_t>(value) > kMostSharedMemory) {
    return report(cudaErrorInvalidValue);
  }
  allowed_shared_memory()[{current_device(), kernel}] = static_cast<std::size_t>(value);
  return report(cudaSuccess);
}
