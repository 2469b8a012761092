// The kernels of tensor/cuda/swiglu.cu against the CPU's.
#include "tensor/cuda/swiglu.h"

#include "cuda/kernels.h"

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Float16;
using fsdp::Tensor;
namespace ops = fsdp::ops;

TEMPLATE_TEST_CASE("swiglu on CUDA memory gives the CPU's values", "[kernels]", float, BFloat16,
                   Float16) {
  for (const std::int64_t n : awkward_sizes()) {
    for (const std::int64_t skip : {0, 1}) {
      INFO("n = " << n << ", skip = " << skip);
      const auto gate = values<TestType>(n, 1), up = values<TestType>(n, 2);
      const Tensor expected = Tensor::empty({n}, fsdp::dtype_of<TestType>());
      ops::swiglu(expected, on_cpu(gate, {n}), on_cpu(up, {n}));
      const Outputs outputs = same_in_some_plans([&](cudaStream_t stream) {
        DeviceValues<TestType> out(stream, values<TestType>(n, 9), skip), g(stream, gate, skip),
            u(stream, up, skip);
        fsdp::cuda::swiglu(stream, out.data(), g.data(), u.data(), n);
        g.drop();
        u.drop();
        return Outputs{out.take({n})};
      });
      CHECK(largest_error(outputs[0], expected) <= tolerance<TestType>());
    }
  }
}

TEMPLATE_TEST_CASE("swiglu's backward on CUDA memory works in place", "[kernels]", float, BFloat16,
                   Float16) {
  const std::int64_t n = 1029;
  const auto gate = values<TestType>(n, 1), up = values<TestType>(n, 2);
  const auto dout = values<TestType>(n, 3);
  const Tensor dgate = on_cpu(gate, {n}), dup = on_cpu(up, {n});
  ops::swiglu_backward(dgate, dup, on_cpu(dout, {n}), dgate, dup);
  const Outputs outputs = same_in_some_plans([&](cudaStream_t stream) {
    DeviceValues<TestType> g(stream, gate, 0), u(stream, up, 1), dy(stream, dout, 0);
    fsdp::cuda::swiglu_backward(stream, g.data(), u.data(), dy.data(), g.data(), u.data(), n);
    dy.drop();
    return Outputs{g.take({n}), u.take({n})};
  });
  CHECK(largest_error(outputs[0], dgate) <= tolerance<TestType>());
  CHECK(largest_error(outputs[1], dup) <= tolerance<TestType>());
}
