// The kernel of tensor/cuda/tree_sum.cu adds in the canonical order.
#include "tensor/cuda/tree_sum.h"

#include "cuda/bits.h"
#include "tensor/tree_sum.h"

#include <span>

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Float16;
using fsdp::Tensor;
namespace cuda = fsdp::cuda;

namespace {

template <class T>
std::vector<Operand<T>> leaves_of(std::int64_t n, std::size_t count) {
  std::vector<Operand<T>> result;
  for (std::size_t k = 0; k < count; ++k) {
    result.push_back({rough<T>(n, static_cast<std::int64_t>(k) + 1), {n}});
  }
  return result;
}
template <>
std::vector<Operand<std::int64_t>> leaves_of(std::int64_t n, std::size_t count) {
  std::vector<Operand<std::int64_t>> result(count, {{}, {n}});
  for (std::size_t k = 0; k < count; ++k) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t word = fsdp::random_word(k + 1, static_cast<std::uint64_t>(i));
      result[k].values.push_back(static_cast<std::int64_t>(word << 32U | word));  // sums overflow
    }
  }
  return result;
}

/// The sum of all operands but the first `before`, into operand `target`.
template <class T>
void check_tree_sum(std::int64_t n, std::size_t count, std::size_t before, std::size_t target) {
  INFO(count << " leaves of " << n << " elements, into operand " << target);
  check_same_bits<T>(
      leaves_of<T>(n, before + count),
      [=](const Tensors& t) {
        std::vector<const std::byte*> in;
        for (std::size_t k = before; k < t.size(); ++k) in.push_back(t[k].raw());
        fsdp::tree_sum(t[target].raw(), in, n, fsdp::dtype_of<T>());
      },
      [=](cudaStream_t s, const Pointers<T>& p) {
        const std::vector<const T*> in(p.begin() + static_cast<std::ptrdiff_t>(before), p.end());
        cuda::tree_sum(s, p[target], in.data(), static_cast<int>(count), n);
      });
}

}  // namespace

TEMPLATE_TEST_CASE("sums on CUDA memory follow the tree for any number of leaves", "[kernels]",
                   float, BFloat16, Float16, std::int64_t) {
  for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 11U, 16U, 21U}) {
    check_tree_sum<TestType>(37, count, 1, 0);
    check_tree_sum<TestType>(37, count, 0, count / 2);  // in place
  }
  check_tree_sum<TestType>(1029, 6, 1, 0);
  check_tree_sum<TestType>(0, 4, 1, 0);
  check_tree_sum<TestType>(1, 256, 0, 255);
}

TEST_CASE("a sum on CUDA memory of no leaf, or of too many, is an error", "[kernels]") {
  const std::vector<const float*> none(257, nullptr);
  for (const int count : {0, 257}) {
    const std::string message = message_of<fsdp::Error>(
        [&] { cuda::tree_sum<float>(nullptr, nullptr, none.data(), count, 1); });
    CHECK_THAT(message,
               contains("it adds 1 to 256 leaves in one call, but got " + std::to_string(count)));
  }
}
