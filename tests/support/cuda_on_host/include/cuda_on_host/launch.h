/// @file
/// How kernels start: cudaLaunchKernelEx, without launch attributes (clusters and the like).
#pragma once

#include "qualifiers.h"
#include "runtime_api.h"

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

struct cudaLaunchAttribute;  // none can be made here

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <class T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

namespace cuda_on_host {

/// One kernel, with its arguments, as the queue of a stream holds it.
struct Launch {
  cudaLaunchConfig_t config;
  const void* kernel;
  void (*call)(const void* kernel, void* arguments);
  std::shared_ptr<void> arguments;
  std::size_t arguments_nbytes;
  /// The arguments that are pointers: by position, and as addresses.
  std::vector<std::pair<int, const void*>> pointers;
};
cudaError_t enqueue(Launch launch);

template <class... Expected>
CUDA_ON_HOST_UNTRACED void call_kernel(const void* kernel, void* arguments) {
  const auto function = reinterpret_cast<void (*)(Expected...)>(const_cast<void*>(kernel));
  std::apply(function, *static_cast<std::tuple<Expected...>*>(arguments));
}

}  // namespace cuda_on_host

/// Starts `kernel` on config->stream with arguments that are converted to its parameters' types.
template <class... Expected, class... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...),
                               Actual&&... arguments) {
  using Arguments = std::tuple<Expected...>;
  const auto packed = std::make_shared<Arguments>(std::forward<Actual>(arguments)...);
  cuda_on_host::Launch launch{*config,
                              reinterpret_cast<const void*>(kernel),
                              &cuda_on_host::call_kernel<Expected...>,
                              packed,
                              sizeof(Arguments),
                              {}};
  int position = 0;
  const auto note = [&](const auto& argument) {
    ++position;
    if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(argument)>>) {
      launch.pointers.emplace_back(position, argument);
    }
  };
  std::apply([&](const auto&... each) { (note(each), ...); }, *packed);
  return cuda_on_host::enqueue(std::move(launch));
}
