#include "tensor/operands.h"

namespace fsdp::ops {

void Operands::expect_usable(const char* name, const Tensor& t) {
  FSDP_CHECK(t.is_defined(), "{}: {} is undefined", op_, name);
  FSDP_CHECK(t.is_contiguous(), "{}: {} {} must be contiguous", op_, name, to_string(t.shape()));
  if (!seen_) {
    device_ = t.device();
    seen_ = true;
  }
  FSDP_CHECK(t.device() == device_, "{}: {} is on {}, the others on {}", op_, name,
             to_string(t.device()), to_string(device_));
  // Freed bytes are an error even where no kernel would read them.
  if (device_.type != DeviceType::meta) t.raw();
}

void Operands::expect_common(const char* name, const Tensor& t) {
  expect_usable(name, t);
  if (!seen_dtype_) {
    FSDP_CHECK(is_floating(t.dtype()), "{}: {} is {}, expected a floating dtype", op_, name,
               name_of(t.dtype()));
    dtype_ = t.dtype();
    seen_dtype_ = true;
  }
  FSDP_CHECK(t.dtype() == dtype_, "{}: {} is {}, the others {}", op_, name, name_of(t.dtype()),
             name_of(dtype_));
}

void Operands::expect_shape(const char* name, const Tensor& t, const std::int64_t* begin,
                            const std::int64_t* end) const {
  FSDP_CHECK(std::equal(t.shape().begin(), t.shape().end(), begin, end),
             "{}: {} has shape {}, expected {}", op_, name, to_string(t.shape()),
             to_string(Shape(begin, end)));
}

Operands& Operands::expect(const char* name, const Tensor& t,
                           std::initializer_list<std::int64_t> shape) {
  expect_common(name, t);
  expect_shape(name, t, shape.begin(), shape.end());
  return *this;
}

Operands& Operands::expect_like(const char* name, const Tensor& t, const Shape& shape) {
  expect_common(name, t);
  expect_shape(name, t, shape.data(), shape.data() + shape.size());
  return *this;
}

Operands& Operands::expect_wide(const char* name, const Tensor& t,
                                std::initializer_list<std::int64_t> shape) {
  FSDP_CHECK(seen_dtype_, "{}: {} came before the operand that gives the dtype", op_, name);
  expect_usable(name, t);
  FSDP_CHECK(t.dtype() == wide_of(dtype_), "{}: {} is {}, expected {} beside {}", op_, name,
             name_of(t.dtype()), name_of(wide_of(dtype_)), name_of(dtype_));
  expect_shape(name, t, shape.begin(), shape.end());
  return *this;
}

Operands& Operands::expect_indices(const char* name, const Tensor& t,
                                   std::initializer_list<std::int64_t> shape) {
  expect_usable(name, t);
  FSDP_CHECK(t.dtype() == DType::int32, "{}: {} is {}, expected int32", op_, name,
             name_of(t.dtype()));
  expect_shape(name, t, shape.begin(), shape.end());
  return *this;
}

Operands& Operands::expect_dims(const char* name, const Tensor& t, int dims) {
  FSDP_CHECK(t.is_defined(), "{}: {} is undefined", op_, name);
  FSDP_CHECK(t.dims() == dims, "{}: {} has shape {}, expected {} dimensions", op_, name,
             to_string(t.shape()), dims);
  return *this;
}

}  // namespace fsdp::ops
