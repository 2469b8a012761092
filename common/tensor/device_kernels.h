/// @file
/// @ingroup tensor
/// The operations of ops.h as kernels of an accelerator: a table, which programs that are linked
/// with CUDA fill.
#pragma once

#include "base/check.h"
#include "device/storage.h"
#include "tensor/init.h"

#include <cstdint>
#include <string_view>

namespace fsdp {

/// The kernel of an operation, such as `kernel_of<ops::swiglu>`, of the operation's own type. The
/// operation has checked its operands, and the kernel checks nothing again. It gives the device its
/// work and returns; only a function that returns a value waits for it. Null: there is none.
template <auto Operation>
inline decltype(Operation) kernel_of = nullptr;

/// Kernels without an operation of their own in ops.h.
struct DeviceKernels {
  /// What a rank's kernels keep on its device, as TEMP, beside the workspace of products that
  /// Context::Options names.
  std::int64_t (*scratch_nbytes)() = nullptr;
  /// init_slice() with random values: element i is drawn from the word (seed, first + i).
  void (*draw)(const Tensor& out, const InitSpec& spec, std::uint64_t seed,
               std::uint64_t first) = nullptr;
  /// ExactSquareSum::add(): counters (ExactSquareSum::kCounters) int64 += squares of values.
  void (*add_squares)(const Tensor& counters, const Tensor& values, float factor) = nullptr;
};

/// Those of the program's accelerator. The first call fills the table.
const DeviceKernels& device_kernels();

/// Whether operations on `device` are kernels of an accelerator. An operation asks before it calls
/// dispatch():
///
///     if (is_accelerated(args.device())) return accelerated<swiglu>(out, gate, up);
inline bool is_accelerated(Device device) { return device.type == DeviceType::cuda; }

/// "swiglu"
template <auto Operation>
constexpr std::string_view name_of_operation() {
  const std::string_view signature = __PRETTY_FUNCTION__;
  const std::size_t begin = signature.find("ops::") + 5;
  return signature.substr(begin, signature.find_first_of(";]", begin) - begin);
}

/// Calls the accelerator's kernel. @throws Error that names the operation, if it has none
template <auto Operation, class... Operands>
auto accelerated(const Operands&... operands) {
  device_kernels();
  if (kernel_of<Operation> == nullptr) {
    fail("{} has no kernel for CUDA: copy its operands to the cpu, and the result back",
         name_of_operation<Operation>());
  }
  return kernel_of<Operation>(operands...);
}

}  // namespace fsdp
