// The kernel of tensor/cuda/rope.cu against the CPU's, bit for bit.
#include "tensor/cuda/rope.h"

#include "cuda/kernels.h"

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::DType;
using fsdp::Float16;
using fsdp::Tensor;
namespace ops = fsdp::ops;

namespace {

struct Heads {
  std::int64_t batch, length, heads, width, skip;
};

template <class T>
void check_rotation(const Heads& s, bool inverse) {
  INFO("(" << s.batch << ", " << s.length << ", " << s.heads << ", " << s.width << "), skip "
           << s.skip << ", inverse " << inverse);
  const fsdp::Shape shape = {s.batch, s.length, s.heads, s.width};
  const fsdp::Shape tables = {s.length + 2, s.width / 2};
  const Tensor cos = Tensor::empty(tables, DType::float32);
  const Tensor sin = Tensor::empty(tables, DType::float32);
  ops::rope_tables(cos, sin, 1e4);
  const auto x = values<T>(s.batch * s.length * s.heads * s.width, 1);
  const Tensor expected = on_cpu(x, shape);
  ops::rope(expected, cos, sin, inverse);
  const Outputs outputs = same_in_some_plans([&](cudaStream_t stream) {
    DeviceValues<T> rotated(stream, x, s.skip);
    DeviceValues<float> c(stream, cos.to_vector<float>(), 0), si(stream, sin.to_vector<float>(), 0);
    fsdp::cuda::rope(stream, rotated.data(), c.data(), si.data(), inverse, s.batch, s.length,
                     s.heads, s.width);
    c.drop();
    si.drop();
    return Outputs{rotated.take(shape)};
  });
  CHECK(ops::equal_bits(outputs[0], expected));
}

}  // namespace

TEMPLATE_TEST_CASE("rope on CUDA memory has the CPU's bits", "[kernels]", float, BFloat16,
                   Float16) {
  for (const bool inverse : {false, true}) {
    check_rotation<TestType>({2, 3, 2, 16, 0}, inverse);
    check_rotation<TestType>({1, 2, 3, 10, 1}, inverse);   // five pairs
    check_rotation<TestType>({1, 2, 40, 64, 0}, inverse);  // more than a block takes at once
    check_rotation<TestType>({2, 0, 2, 16, 0}, inverse);
  }
}
