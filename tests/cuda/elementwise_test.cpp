// The kernels of tensor/cuda/elementwise.cu have the CPU's bits.
#include "tensor/cuda/elementwise.h"

#include "cuda/bits.h"

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Float16;
using fsdp::Tensor;
using fsdp::ops::Write;
namespace cuda = fsdp::cuda;
namespace ops = fsdp::ops;

namespace {

template <class T>
std::vector<Operand<T>> vectors(std::int64_t n, std::size_t count) {
  std::vector<Operand<T>> result;
  for (std::size_t k = 0; k < count; ++k) {
    result.push_back(rough_operand<T>({n}, static_cast<std::int64_t>(k) + 1));
  }
  return result;
}

}  // namespace

TEMPLATE_TEST_CASE("add, multiply, write and scale on CUDA memory have the CPU's bits", "[kernels]",
                   float, BFloat16, Float16) {
  using T = TestType;
  for (const std::int64_t n : kFewSizes) {
    check_same_bits<T>(
        vectors<T>(n, 3), [](const Tensors& t) { ops::add(t[0], t[1], t[2]); },
        [n](cudaStream_t s, const Pointers<T>& p) { cuda::add(s, p[0], p[1], p[2], n); });
    check_same_bits<T>(
        vectors<T>(n, 1), [](const Tensors& t) { ops::scale(t[0], 1.0 / 3); },
        [n](cudaStream_t s, const Pointers<T>& p) { cuda::scale(s, p[0], 1.0 / 3, n); });
    for (const Write mode : {Write::set, Write::add}) {
      check_same_bits<T>(
          vectors<T>(n, 3), [=](const Tensors& t) { ops::multiply(t[0], t[1], t[2], mode); },
          [=](cudaStream_t s, const Pointers<T>& p) {
            cuda::multiply(s, p[0], p[1], p[2], n, mode);
          });
      check_same_bits<T>(
          vectors<T>(n, 2), [=](const Tensors& t) { ops::write(t[0], t[1], mode); },
          [=](cudaStream_t s, const Pointers<T>& p) { cuda::write(s, p[0], p[1], n, mode); });
    }
  }
}

TEMPLATE_TEST_CASE("a sum on CUDA memory may replace an addend", "[kernels]", float, BFloat16,
                   Float16) {
  using T = TestType;
  const std::int64_t n = 1029;
  check_same_bits<T>(
      vectors<T>(n, 2),
      [](const Tensors& t) {
        ops::add(t[0], t[0], t[1]);
        ops::multiply(t[1], t[0], t[1]);
      },
      [](cudaStream_t s, const Pointers<T>& p) {
        cuda::add(s, p[0], p[0], p[1], n);
        cuda::multiply(s, p[1], p[0], p[1], n, Write::set);
      });
}

TEMPLATE_TEST_CASE("relu and tanh on CUDA memory have the CPU's bits, backward too", "[kernels]",
                   float, BFloat16, Float16) {
  using T = TestType;
  for (const std::int64_t n : kFewSizes) {
    check_same_bits<T>(
        vectors<T>(n, 2), [](const Tensors& t) { ops::relu(t[0], t[1]); },
        [n](cudaStream_t s, const Pointers<T>& p) { cuda::relu(s, p[0], p[1], n); });
    check_same_bits<T>(
        vectors<T>(n, 2), [](const Tensors& t) { ops::tanh(t[0], t[1]); },
        [n](cudaStream_t s, const Pointers<T>& p) { cuda::tanh(s, p[0], p[1], n); });
    for (const Write mode : {Write::set, Write::add}) {
      check_same_bits<T>(
          vectors<T>(n, 3), [=](const Tensors& t) { ops::relu_backward(t[0], t[1], t[2], mode); },
          [=](cudaStream_t s, const Pointers<T>& p) {
            cuda::relu_backward(s, p[0], p[1], p[2], n, mode);
          });
      check_same_bits<T>(
          vectors<T>(n, 3), [=](const Tensors& t) { ops::tanh_backward(t[0], t[1], t[2], mode); },
          [=](cudaStream_t s, const Pointers<T>& p) {
            cuda::tanh_backward(s, p[0], p[1], p[2], n, mode);
          });
    }
  }
}

TEMPLATE_TEST_CASE("a row is added to all rows on CUDA memory", "[kernels]", float, BFloat16,
                   Float16) {
  using T = TestType;
  const fsdp::Shape shapes[] = {{0, 3}, {3, 0}, {1, 1}, {70, 36}, {9, 131}, {3, 1032}};
  for (const fsdp::Shape& shape : shapes) {
    check_same_bits<T>(
        {rough_operand<T>(shape, 1), rough_operand<T>({shape[1]}, 2)},
        [](const Tensors& t) { ops::add_row(t[0], t[1]); },
        [&](cudaStream_t s, const Pointers<T>& p) {
          cuda::add_row(s, p[0], p[1], shape[0], shape[1]);
        });
  }
}
