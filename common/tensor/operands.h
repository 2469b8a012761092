/// @file
/// @ingroup tensor
/// The checks of every kernel's operands, and the cut of its work.
#pragma once

#include "device/context.h"
#include "tensor/costs.h"
#include "tensor/dispatch.h"
#include "tensor/tensor.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace fsdp::ops {

/// Checks of one call of kernel `op`. The first operand determines dtype and device.
class Operands {
 public:
  explicit Operands(const char* op) : op_(op) {}

  /// `t` is contiguous, of this shape, and of the common floating dtype and device.
  /// It is allocated (else StorageError), even on the fake device.
  Operands& expect(const char* name, const Tensor& t, std::initializer_list<std::int64_t> shape);
  /// Like expect(), for any shape.
  Operands& expect_like(const char* name, const Tensor& t, const Shape& shape);
  /// Of this shape, and of the dtype in which an operation on the common one computes: float32
  /// beside 16-bit floats. The common one must have been seen.
  Operands& expect_wide(const char* name, const Tensor& t,
                        std::initializer_list<std::int64_t> shape);
  /// Indices: int32, contiguous, same device.
  Operands& expect_indices(const char* name, const Tensor& t,
                           std::initializer_list<std::int64_t> shape);
  /// Number of dimensions of an operand, before its shape is read.
  Operands& expect_dims(const char* name, const Tensor& t, int dims);

  Device device() const { return device_; }
  DType dtype() const { return dtype_; }
  std::size_t size() const { return size_of(dtype_); }  ///< bytes of an element
  /// dispatch() of a kernel with this cost, which gets a value of the common element type.
  template <class Kernel>
  void compute(const Cost& cost, Kernel&& kernel) const {
    dispatch(device_, cost, [&] { dispatch_floating(dtype_, kernel); });
  }
  /// The same for a cost that only it asks for: the work of each of n elements.
  template <class Kernel>
  void compute_each(double flops, double moved, std::int64_t n, Kernel&& kernel) const {
    compute(costs::each(flops, moved, n, size()), kernel);
  }

 private:
  void expect_common(const char* name, const Tensor& t);
  void expect_shape(const char* name, const Tensor& t, const std::int64_t* begin,
                    const std::int64_t* end) const;
  void expect_usable(const char* name, const Tensor& t);

  const char* op_;
  bool seen_ = false;
  bool seen_dtype_ = false;
  Device device_;
  DType dtype_ = DType::float32;
};

/// Elements per piece of an elementwise kernel: enough to hide the cost of a piece, few enough to
/// use several threads. A constant, so the pieces depend on nothing else.
inline constexpr std::int64_t kGrain = 16384;

/// Runs body(begin, end, scratch) over [0, n), cut every `grain`, on the rank's threads.
template <class Body>
void parallel_ranges(std::int64_t n, std::int64_t grain, Body&& body) {
  if (n <= 0) return;
  Context::current().pool().for_each((n + grain - 1) / grain,
                                     [&](std::int64_t piece, std::byte* scratch) {
                                       const std::int64_t begin = piece * grain;
                                       body(begin, std::min(n, begin + grain), scratch);
                                     });
}

/// Rows per piece so that a piece is about kGrain elements.
inline std::int64_t row_grain(std::int64_t row) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, row));
}

}  // namespace fsdp::ops
