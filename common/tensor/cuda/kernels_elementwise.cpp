// Filling, copying, comparing, elementwise arithmetic and sums.
#include "tensor/cuda/copy.h"
#include "tensor/cuda/elementwise.h"
#include "tensor/cuda/kernel_state.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/reductions.h"
#include "tensor/cuda/scalar.h"

namespace fsdp::cuda {
namespace {

template <class Body>
void dispatch_any(const char* operation, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::int32:
      return body(std::int32_t{});
    case DType::int64:
      return body(std::int64_t{});
    default:
      return dispatch_floating(operation, dtype, body);
  }
}

StridedShape strided_shape(const Tensor& out, const Tensor& in) {
  FSDP_CHECK(out.dims() <= StridedShape::kMostDims,
             "copy: on CUDA a strided tensor has at most {} dimensions, not {}",
             StridedShape::kMostDims, out.dims());
  StridedShape shape;
  shape.dims = out.dims();
  for (std::size_t d = 0; d < out.shape().size(); ++d) {
    shape.extents[d] = out.shape()[d];
    shape.to_strides[d] = out.strides()[d];
    shape.from_strides[d] = in.strides()[d];
  }
  return shape;
}

/// Runs `kernel(flag)`, which sets the flag to 1 or leaves it. The host waits.
template <class Kernel>
bool is_flag_set(Kernel kernel) {
  RankDevice& device = Context::current().rank_device();
  auto* const flag = CudaKernelState::current().word<std::int32_t>();
  device.fill(reinterpret_cast<std::byte*>(flag), 0, sizeof *flag);
  kernel(flag);
  std::int32_t value = 0;
  device.read(&value, reinterpret_cast<const std::byte*>(flag), sizeof value);
  return value != 0;
}

std::int64_t scratch_nbytes() { return CudaKernelState::words_nbytes(); }

void fill(const Tensor& out, double value) {
  dispatch_any("fill", out.dtype(),
               [&]<class T>(T) { cuda::fill(compute(), out.data<T>(), value, out.numel()); });
}

void fill_with(const Tensor& out, const Tensor& value) {
  dispatch_floating("fill_with", out.dtype(), [&]<class T>(T) {
    cuda::fill_with(compute(), out.data<T>(), value.data<float>(), out.numel());
  });
}

void copy(const Tensor& out, const Tensor& in) {
  if (out.numel() == 0) return;
  const bool is_contiguous = out.is_contiguous() && in.is_contiguous();
  if (is_contiguous && out.dtype() == in.dtype()) {
    return Context::current().rank_device().copy(compute(), out.raw(), in.raw(), out.nbytes());
  }
  dispatch_any("copy", out.dtype(), [&]<class To>(To) {
    dispatch_any("copy", in.dtype(), [&]<class From>(From) {
      if (is_contiguous) {
        cuda::copy(compute(), out.data<To>(), in.data<From>(), out.numel());
      } else {
        cuda::copy_strided(compute(), out.data<To>(), in.data<From>(), strided_shape(out, in));
      }
    });
  });
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  return !is_flag_set([&](std::int32_t* differ) {
    dispatch_any("equal_bits", a.dtype(), [&]<class T>(T) {
      cuda::equal_bits(compute(), differ, a.data<T>(), b.data<T>(), a.numel());
    });
  });
}

bool all_finite(const Tensor& a) {
  return !is_flag_set([&](std::int32_t* found) {
    dispatch_floating("all_finite", a.dtype(), [&]<class T>(T) {
      cuda::all_finite(compute(), found, a.data<T>(), a.numel());
    });
  });
}

void add(const Tensor& out, const Tensor& a, const Tensor& b) {
  dispatch_floating("add", out.dtype(), [&]<class T>(T) {
    cuda::add(compute(), out.data<T>(), a.data<T>(), b.data<T>(), out.numel());
  });
}

void multiply(const Tensor& out, const Tensor& a, const Tensor& b, Write write) {
  dispatch_floating("multiply", out.dtype(), [&]<class T>(T) {
    cuda::multiply(compute(), out.data<T>(), a.data<T>(), b.data<T>(), out.numel(), write);
  });
}

void write(const Tensor& out, const Tensor& in, Write write) {
  dispatch_floating("write", out.dtype(), [&]<class T>(T) {
    cuda::write(compute(), out.data<T>(), in.data<T>(), out.numel(), write);
  });
}

void scale(const Tensor& out, double factor) {
  dispatch_floating("scale", out.dtype(), [&]<class T>(T) {
    cuda::scale(compute(), out.data<T>(), factor, out.numel());
  });
}

void scale_by(const Tensor& out, const Tensor& factor, double times, double over) {
  dispatch_floating("scale_by", out.dtype(), [&]<class T>(T) {
    cuda::scale_by(compute(), out.data<T>(), factor.data<float>(), times, over, out.numel());
  });
}

void add_row(const Tensor& out, const Tensor& row) {
  dispatch_floating("add_row", out.dtype(), [&]<class T>(T) {
    cuda::add_row(compute(), out.data<T>(), row.data<T>(), out.size(0), out.size(1));
  });
}

void sum_rows(const Tensor& out, const Tensor& in, Write write) {
  dispatch_floating("sum_rows", in.dtype(), [&]<class T>(T) {
    cuda::sum_rows(compute(), out.data<T>(), in.data<T>(), in.size(0), in.size(1), write);
  });
}

void sum(const Tensor& out, const Tensor& in) {
  dispatch_floating("sum", in.dtype(), [&]<class T>(T) {
    cuda::sum(compute(), out.data<float>(), in.data<T>(), in.numel());
  });
}

void relu(const Tensor& out, const Tensor& in) {
  dispatch_floating("relu", out.dtype(), [&]<class T>(T) {
    cuda::relu(compute(), out.data<T>(), in.data<T>(), out.numel());
  });
}

void relu_backward(const Tensor& din, const Tensor& dout, const Tensor& in, Write write) {
  dispatch_floating("relu_backward", din.dtype(), [&]<class T>(T) {
    cuda::relu_backward(compute(), din.data<T>(), dout.data<T>(), in.data<T>(), din.numel(), write);
  });
}

void tanh(const Tensor& out, const Tensor& in) {
  dispatch_floating("tanh", out.dtype(), [&]<class T>(T) {
    cuda::tanh(compute(), out.data<T>(), in.data<T>(), out.numel());
  });
}

void tanh_backward(const Tensor& din, const Tensor& dout, const Tensor& out, Write write) {
  dispatch_floating("tanh_backward", din.dtype(), [&]<class T>(T) {
    cuda::tanh_backward(compute(), din.data<T>(), dout.data<T>(), out.data<T>(), din.numel(),
                        write);
  });
}

}  // namespace

void add_elementwise_kernels(DeviceKernels& kernels) {
  kernel_of<ops::fill> = fill;
  kernel_of<ops::fill_with> = fill_with;
  kernel_of<ops::copy> = copy;
  kernel_of<ops::equal_bits> = equal_bits;
  kernel_of<ops::all_finite> = all_finite;
  kernel_of<ops::add> = add;
  kernel_of<ops::multiply> = multiply;
  kernel_of<ops::write> = write;
  kernel_of<ops::scale> = scale;
  kernel_of<ops::scale_by> = scale_by;
  kernel_of<ops::add_row> = add_row;
  kernel_of<ops::sum_rows> = sum_rows;
  kernel_of<ops::sum> = sum;
  kernel_of<ops::relu> = relu;
  kernel_of<ops::relu_backward> = relu_backward;
  kernel_of<ops::tanh> = tanh;
  kernel_of<ops::tanh_backward> = tanh_backward;
  kernels.scratch_nbytes = scratch_nbytes;
}

}  // namespace fsdp::cuda
