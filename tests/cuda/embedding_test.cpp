// The kernels of tensor/cuda/embedding.cu against the CPU's, bit for bit.
#include "tensor/cuda/embedding.h"

#include "cuda/few_plans.h"
#include "cuda/indices.h"

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Float16;
using fsdp::Tensor;
namespace ops = fsdp::ops;

namespace {

struct Lookup {
  std::int64_t rows, width, vocabulary, skip;
};
/// More rows than a warp compares at once, and than a block does; wider than a warp and a block;
/// tokens at no multiple of 16 bytes.
const std::vector<Lookup>& some_lookups() {
  static const std::vector<Lookup> all = {{1, 1, 1, 0},     {70, 5, 7, 1},  {33, 64, 40, 0},
                                          {9, 1029, 3, 0},  {0, 8, 5, 0},   {300, 12, 90, 0},
                                          {300, 12, 40, 3}, {1100, 4, 3, 0}};
  return all;
}

template <class T>
void check_embedding(const Lookup& s) {
  INFO(s.rows << " rows of " << s.width << ", vocabulary " << s.vocabulary);
  const auto table = values<T>(s.vocabulary * s.width, 1);
  const auto tokens = indices(s.rows, s.vocabulary, 3);
  const Tensor expected = Tensor::empty({s.rows, s.width}, fsdp::dtype_of<T>());
  ops::embedding(expected, on_cpu(table, {s.vocabulary, s.width}), on_cpu(tokens, {s.rows}));
  const Outputs outputs = same_in_some_plans([&](cudaStream_t stream) {
    DeviceValues<T> out(stream, values<T>(s.rows * s.width, 9), s.skip), from(stream, table, 0);
    DeviceValues<std::int32_t> at(stream, tokens, s.skip);
    DeviceError error(stream);
    fsdp::cuda::embedding(stream, out.data(), from.data(), at.data(), s.rows, s.width, s.vocabulary,
                          error.data());
    error.expect_none();
    from.drop();
    at.drop();
    return Outputs{out.take({s.rows, s.width})};
  });
  CHECK(ops::equal_bits(outputs[0], expected));
}

/// Fractions whose sums depend on their order.
template <class T>
std::vector<T> gradient_thirds(std::int64_t n) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < n; ++i)
    result.push_back(T(value_at(i, 5) / 3 * (i % 7 == 0 ? 300 : 1)));
  return result;
}

template <class T>
void check_backward(const Lookup& s, bool add, std::int64_t padding = -1) {
  INFO(s.rows << " rows of " << s.width << ", vocabulary " << s.vocabulary << ", add " << add
              << ", padding " << padding);
  const auto held = values<T>(s.vocabulary * s.width, 1);
  const auto dout = gradient_thirds<T>(s.rows * s.width);
  const auto tokens = indices(s.rows, s.vocabulary, 3);
  const Tensor expected = on_cpu(held, {s.vocabulary, s.width});
  ops::embedding_backward(expected, on_cpu(dout, {s.rows, s.width}), on_cpu(tokens, {s.rows}),
                          add ? ops::Write::add : ops::Write::set, padding);
  const Outputs outputs = same_in_some_plans([&](cudaStream_t stream) {
    DeviceValues<T> to(stream, held, 0), dy(stream, dout, s.skip);
    DeviceValues<std::int32_t> at(stream, tokens, s.skip);
    DeviceError error(stream);
    fsdp::cuda::embedding_backward(stream, to.data(), dy.data(), at.data(), s.rows, s.width,
                                   s.vocabulary, padding, add, error.data());
    error.expect_none();
    dy.drop();
    at.drop();
    return Outputs{to.take({s.vocabulary, s.width})};
  });
  CHECK(ops::equal_bits(outputs[0], expected));
}

}  // namespace

TEMPLATE_TEST_CASE("embedding on CUDA memory has the CPU's bits", "[kernels]", float, BFloat16,
                   Float16) {
  for (const Lookup& s : some_lookups()) check_embedding<TestType>(s);
}

TEMPLATE_TEST_CASE("embedding's backward on CUDA memory adds in token order, as the CPU does",
                   "[kernels]", float, BFloat16, Float16) {
  for (const Lookup& s : some_lookups()) {
    check_backward<TestType>(s, false);
    check_backward<TestType>(s, true);
    for (const bool add : {false, true}) check_backward<TestType>(s, add, s.vocabulary / 2);
  }
}

TEST_CASE("a token that stands first beyond two chunks is found there once", "[kernels]") {
  const Lookup s{2100, 4, 2, 0};
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(s.rows));  // a chunk has 1024
  tokens[2060] = tokens[2099] = 1;
  const auto dout = gradient_thirds<float>(s.rows * s.width);
  const Tensor expected = Tensor::empty({s.vocabulary, s.width});
  ops::embedding_backward(expected, on_cpu(dout, {s.rows, s.width}), on_cpu(tokens, {s.rows}),
                          ops::Write::set);
  const Outputs outputs = in_one_plan([&](cudaStream_t stream) {
    DeviceValues<float> to(stream, values<float>(s.vocabulary * s.width, 1), 0),
        dy(stream, dout, 0);
    DeviceValues<std::int32_t> at(stream, tokens, 0);
    DeviceError error(stream);
    fsdp::cuda::embedding_backward(stream, to.data(), dy.data(), at.data(), s.rows, s.width,
                                   s.vocabulary, -1, false, error.data());
    error.expect_none();
    dy.drop();
    at.drop();
    return Outputs{to.take({s.vocabulary, s.width})};
  });
  CHECK(ops::equal_bits(outputs[0], expected));
}

TEST_CASE("the first token outside the vocabulary is reported and has no effect", "[kernels]") {
  const Lookup s{40, 600, 5, 0};
  auto tokens = indices(s.rows, s.vocabulary, 3);
  const auto right = tokens;
  tokens[7] = -2;
  tokens[35] = 5;
  const auto table = values<float>(s.vocabulary * s.width, 1);
  const auto dout = values<float>(s.rows * s.width, 2);
  const auto held = values<float>(s.rows * s.width, 9);
  // On the CPU: the right tokens, with gradients of zero where a token is wrong.
  const Tensor out = Tensor::empty({s.rows, s.width}, fsdp::DType::float32);
  ops::embedding(out, on_cpu(table, {s.vocabulary, s.width}), on_cpu(right, {s.rows}));
  auto rows = out.to_vector<float>(), counted = dout;
  for (const std::int64_t wrong : {7, 35}) {
    const auto at = static_cast<std::ptrdiff_t>(wrong * s.width);
    std::copy_n(held.begin() + at, s.width, rows.begin() + at);
    std::fill_n(counted.begin() + at, s.width, 0.0F);
  }
  const Tensor dtable = on_cpu(table, {s.vocabulary, s.width});
  ops::embedding_backward(dtable, on_cpu(counted, {s.rows, s.width}), on_cpu(right, {s.rows}),
                          ops::Write::add);
  const Outputs outputs = same_in_some_plans([&](cudaStream_t stream) {
    DeviceValues<float> y(stream, held, 0), from(stream, table, 0), dy(stream, dout, 0);
    DeviceValues<std::int32_t> at(stream, tokens, s.skip);
    DeviceError forward(stream), backward(stream);
    fsdp::cuda::embedding(stream, y.data(), from.data(), at.data(), s.rows, s.width, s.vocabulary,
                          forward.data());
    fsdp::cuda::embedding_backward(stream, from.data(), dy.data(), at.data(), s.rows, s.width,
                                   s.vocabulary, -1, true, backward.data());
    forward.expect(7, -2);
    backward.expect(7, -2);
    dy.drop();
    at.drop();
    return Outputs{y.take({s.rows, s.width}), from.take({s.vocabulary, s.width})};
  });
  CHECK(ops::equal_bits(outputs[0], on_cpu(rows, {s.rows, s.width})));
  CHECK(ops::equal_bits(outputs[1], dtable));
}
