// The kernels of tensor/cuda/reductions.cu add in the CPU's order.
#include "tensor/cuda/reductions.h"

#include "cuda/bits.h"

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Float16;
using fsdp::Shape;
using fsdp::Tensor;
using fsdp::ops::Write;
namespace cuda = fsdp::cuda;
namespace ops = fsdp::ops;

TEMPLATE_TEST_CASE("sums of rows on CUDA memory have the CPU's bits", "[kernels]", float, BFloat16,
                   Float16) {
  using T = TestType;
  // Rows of one group of 64, of several, of more than the 16 that a block takes at once.
  const Shape shapes[] = {{0, 5}, {1, 1}, {64, 33}, {65, 7}, {200, 70}, {1024, 3}, {2300, 2}};
  for (const Shape& shape : shapes) {
    for (const Write mode : {Write::set, Write::add}) {
      check_same_bits<T>(
          {rough_operand<T>({shape[1]}, 1), rough_operand<T>(shape, 2)},
          [=](const Tensors& t) { ops::sum_rows(t[0], t[1], mode); },
          [&](cudaStream_t s, const Pointers<T>& p) {
            cuda::sum_rows(s, p[0], p[1], shape[0], shape[1], mode);
          });
    }
  }
}

TEMPLATE_TEST_CASE("the sum of a tensor on CUDA memory has the CPU's bits", "[kernels]", float,
                   BFloat16, Float16) {
  using T = TestType;
  // A part of the lanes, several chunks of 4096, more than the 128 of them that go at once.
  for (const std::int64_t n : {0, 1, 13, 1000, 5555, 20001, 130 * 4096 + 5}) {
    INFO("n = " << n);
    const auto values = rough<T>(n, 1);
    const Tensor expected = Tensor::empty({1});
    ops::sum(expected, on_cpu(values, {n}));
    for (std::size_t round = 0; round < (n > 100000 ? 1 : 3); ++round) {
      const Outputs outputs = run_in_turn(round, [&](cudaStream_t stream) {
        DeviceValues<T> in(stream, values, round == 1 ? 1 : 0);
        DeviceValues<float> out(stream, {NAN}, 0);
        cuda::sum(stream, out.data(), in.data(), n);
        in.drop();
        return Outputs{out.take({1})};
      });
      CHECK(ops::equal_bits(outputs[0], expected));
    }
  }
}
