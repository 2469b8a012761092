// Products by cuBLASLt against the CPU's.
#include "tensor/cuda/matmul.h"

#include "cuda/kernels.h"

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Float16;
using fsdp::Tensor;
using fsdp::cuda::Products;
using fsdp::cuda::ProductShape;
namespace ops = fsdp::ops;

namespace {

constexpr std::size_t kWorkspace = 2048;

/// What one element's sum of `depth` terms up to 4 may differ by, relative to its size or 1.
template <class T>
double product_tolerance(std::int64_t depth) {
  const double sum = 4e-7 * std::sqrt(static_cast<double>(depth)) * 4;
  return std::is_same_v<T, float> ? sum : tolerance<T>();
}

template <class T>
Tensor on_the_cpu(const ProductShape& s, const std::vector<T>& out, const std::vector<T>& a,
                  const std::vector<T>& b) {
  const auto transpose = [](bool yes) { return yes ? ops::Transpose::yes : ops::Transpose::no; };
  const fsdp::Shape a_shape =
      s.a_transposed ? fsdp::Shape{s.depth, s.rows} : fsdp::Shape{s.rows, s.depth};
  const fsdp::Shape b_shape =
      s.b_transposed ? fsdp::Shape{s.columns, s.depth} : fsdp::Shape{s.depth, s.columns};
  const Tensor result = on_cpu(out, {s.rows, s.columns});
  ops::matmul(result, on_cpu(a, a_shape), transpose(s.a_transposed), on_cpu(b, b_shape),
              transpose(s.b_transposed), s.add ? ops::Write::add : ops::Write::set);
  return result;
}

template <class T>
void check_product(const ProductShape& s, std::int64_t skip) {
  INFO(s.rows << " x " << s.columns << " x " << s.depth << ", transposed " << s.a_transposed
              << s.b_transposed << ", add " << s.add << ", skip " << skip);
  const auto out = values<T>(s.rows * s.columns, 3);
  const auto a = values<T>(s.rows * s.depth, 1), b = values<T>(s.depth * s.columns, 2);
  const Outputs outputs = same_in_some_plans([&](cudaStream_t stream) {
    Products products(kWorkspace);
    DeviceValues<T> result(stream, out, skip), left(stream, a, skip), right(stream, b, skip);
    OnDevice<char> workspace(stream, kWorkspace);
    products.matmul(stream, result.data(), left.data(), right.data(), s, workspace.data);
    workspace.free();
    left.drop();
    right.drop();
    return Outputs{result.take({s.rows, s.columns})};
  });
  CHECK(largest_error(outputs[0], on_the_cpu(s, out, a, b)) <= product_tolerance<T>(s.depth));
}

}  // namespace

TEMPLATE_TEST_CASE("products on CUDA memory agree with the CPU's in every orientation", "[kernels]",
                   float, BFloat16, Float16) {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const bool add : {false, true}) {
        check_product<TestType>({5, 7, 19, a_transposed, b_transposed, add}, add ? 1 : 0);
      }
    }
  }
  check_product<TestType>({1, 1, 1}, 0);
  check_product<TestType>({3, 2, 300}, 0);
}

TEMPLATE_TEST_CASE("a product without terms is zero, or leaves what is there", "[kernels]", float,
                   BFloat16, Float16) {
  for (const bool add : {false, true}) check_product<TestType>({3, 5, 0, false, false, add}, 0);
  check_product<TestType>({0, 5, 2}, 0);
  check_product<TestType>({5, 0, 2}, 0);
}

TEST_CASE("an algorithm is chosen once per shape, format and alignment", "[kernels]") {
  Session session(requested_or({Mode::random, 3}));
  const cudaStream_t stream = new_stream();
  Products products(kWorkspace);
  OnDevice<char> workspace(stream, kWorkspace);
  OnDevice<float> memory(stream, std::vector<float>(64, 1.0F));
  OnDevice<BFloat16> halves(stream, std::vector<BFloat16>(64, BFloat16(1.0F)));
  const auto run = [&](const ProductShape& shape, std::int64_t skip) {
    float* const a = memory.data + skip;
    products.matmul(stream, a + 32, a, a + 16, shape, workspace.data);
    return products.num_choices();
  };
  CHECK(run({2, 4, 4}, 0) == 1);
  CHECK(run({2, 4, 4}, 0) == 1);
  CHECK(run({2, 4, 4}, 1) == 2);  // 4 bytes
  CHECK(run({2, 4, 4}, 3) == 2);
  CHECK(run({2, 4, 4}, 4) == 2);  // 16 bytes again
  CHECK(run({3, 2, 4}, 0) == 3);
  CHECK(run({3, 2, 4}, 1) == 3);  // its rows of 8 bytes are not aligned anyway
  CHECK(run({2, 4, 4, true}, 0) == 4);
  CHECK(run({2, 4, 4, true}, 1) == 4);
  CHECK(run({4, 4, 3, false, true}, 0) == 5);
  CHECK(run({4, 4, 3, false, true}, 1) == 5);
  CHECK(run({2, 4, 4, false, false, true}, 0) == 6);
  products.matmul(stream, halves.data + 32, halves.data, halves.data + 16, {2, 4, 4},
                  workspace.data);
  CHECK(products.num_choices() == 7);
  workspace.free();
  memory.free();
  halves.free();
  check(cudaStreamDestroy(stream));
  CHECK_NOTHROW(session.finish());
}
