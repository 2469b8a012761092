/// @file
/// @ingroup tensor
/// Tensor: a shape over a Storage.
#pragma once

#include "base/check.h"
#include "base/half_floats.h"
#include "base/types.h"
#include "device/storage.h"

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace fsdp {

/// The DType of a C++ element type.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::float32;
  if constexpr (std::is_same_v<T, double>) return DType::float64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::int32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::int64;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::bfloat16;
  if constexpr (std::is_same_v<T, Float16>) return DType::float16;
}

/// A strided view of a Storage. Copying a Tensor copies the view, never the bytes. The storage need
/// not be allocated (and never is on the meta device). The shape is always known.
class Tensor {
 public:
  Tensor() = default;  ///< Undefined: no storage, no shape.

  /// Fresh bytes with undefined contents (NaN in checked builds); AllocationScope sets their kind.
  /// On meta: shape only.
  static Tensor empty(Shape shape, DType dtype = DType::float32);
  static Tensor empty(Shape shape, DType dtype, Device device);
  static Tensor zeros(Shape shape, DType dtype = DType::float32);
  /// Copies `values` to the current device; sizes must agree. The host waits for a CUDA device.
  template <class T>
  static Tensor from(const std::vector<T>& values, Shape shape);
  /// A contiguous view of `storage` beginning at element `begin`. The storage may be unallocated.
  static Tensor view_of(std::shared_ptr<Storage> storage, std::int64_t begin, Shape shape,
                        DType dtype);

  bool is_defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const std::vector<std::int64_t>& strides() const { return strides_; }  ///< in elements
  std::int64_t size(int dim) const;  ///< negative counts from the end
  int dims() const { return static_cast<int>(shape_.size()); }
  std::int64_t numel() const { return numel_; }
  std::size_t nbytes() const { return static_cast<std::size_t>(numel_) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  bool is_contiguous() const;
  std::int64_t offset() const { return offset_; }  ///< first element within the storage
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  /// Same elements, another shape; the tensor must be contiguous.
  Tensor view(Shape shape) const;
  /// Elements [begin, begin + length) of dimension `dim`.
  Tensor narrow(int dim, std::int64_t begin, std::int64_t length) const;
  /// Exchanges two dimensions.
  Tensor transpose(int a, int b) const;

  /// First element. @throws StorageError if not allocated, Error on a wrong type.
  /// Null on the fake device. Only kernels can use an address of a CUDA device.
  template <class T>
  T* data() const {
    FSDP_CHECK(dtype_of<std::remove_const_t<T>>() == dtype_, "data<{}>() of a {} tensor",
               name_of(dtype_of<std::remove_const_t<T>>()), name_of(dtype_));
    return reinterpret_cast<T*>(raw());
  }
  std::byte* raw() const;

  /// Elements in row-major order, for any strides. The host waits for a CUDA device, here and in
  /// item().
  template <class T>
  std::vector<T> to_vector() const;
  /// The only element of a one-element tensor, as double.
  double item() const;

 private:
  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;
  Shape shape_;
  std::vector<std::int64_t> strides_;
  std::int64_t numel_ = 0;
  DType dtype_ = DType::float32;
};

}  // namespace fsdp
