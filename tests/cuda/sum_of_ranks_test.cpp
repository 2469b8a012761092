// The sum of a reduction between ranks (comm/cuda/sum_of_ranks.cu) against tree_sum().
#include "comm/cuda/sum_of_ranks.h"

#include "comm/scale_down.h"
#include "cuda/kernels.h"
#include "tensor/tree_sum.h"

#include <limits>
#include <memory>

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Float16;
using fsdp::Tensor;

namespace {

/// Of mixed size, so that every order of addition gives other bits.
template <class T>
std::vector<T> uneven(std::int64_t n, std::int64_t rank) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto mixed = static_cast<std::int32_t>((i + 11) * (rank + 5) * 2654435761 % 99991);
    if constexpr (std::is_integral_v<T>) {
      result.push_back(std::numeric_limits<T>::max() / 3 + static_cast<T>(mixed));  // wraps
    } else {
      result.push_back(
          static_cast<T>(static_cast<float>(mixed) / (1.0F + static_cast<float>(i % 7))));
    }
  }
  return result;
}

template <class T>
Tensor expected_sum(int ranks, std::int64_t n, bool average) {
  std::vector<Tensor> all;
  std::vector<const std::byte*> ins;
  for (int r = 0; r < ranks; ++r) {
    all.push_back(on_cpu(uneven<T>(n, r), {n}));
    ins.push_back(all.back().raw());
  }
  const Tensor sum = Tensor::empty({n}, fsdp::dtype_of<T>());
  fsdp::tree_sum(sum.raw(), ins, n, sum.dtype());
  if (average) fsdp::scale_down(sum.raw(), n, sum.dtype(), ranks);
  return sum;
}

/// Adds up `ranks` vectors into the first of them, and into one more.
template <class T>
void check_sum(int ranks, std::int64_t n, std::int64_t skip, bool average) {
  INFO(ranks << " ranks, n = " << n << ", skip = " << skip << ", average " << average);
  const Tensor expected = expected_sum<T>(ranks, n, average);
  const Outputs outputs = same_in_some_plans([&](cudaStream_t stream) {
    std::vector<std::unique_ptr<DeviceValues<T>>> ins;
    DeviceValues<T> other(stream, uneven<T>(n, 77), skip);
    fsdp::cuda::RankVectors<T> vectors{};
    for (int r = 0; r < ranks; ++r) {
      ins.push_back(std::make_unique<DeviceValues<T>>(stream, uneven<T>(n, r), skip));
      vectors.ins[vectors.in_count++] = ins.back()->data();
    }
    vectors.outs[0] = ins.front()->data();
    vectors.outs[1] = other.data();
    vectors.out_count = 2;
    fsdp::cuda::sum_of_ranks(stream, vectors, n, average);
    Outputs results{ins.front()->take({n}), other.take({n})};
    for (int r = 1; r < ranks; ++r) ins[static_cast<std::size_t>(r)]->drop();
    return results;
  });
  for (const Tensor& output : outputs) CHECK(fsdp::ops::equal_bits(output, expected));
}

}  // namespace

TEMPLATE_TEST_CASE("a sum of ranks on CUDA memory has the bits of tree_sum", "[kernels]", float,
                   double, BFloat16, Float16, std::int32_t, std::int64_t) {
  for (const std::int64_t n : {0, 1, 31, 33, 1029}) check_sum<TestType>(3, n, 0, false);
  for (const int ranks : {1, 2, 4, 5, 6, 7, 8, 13}) check_sum<TestType>(ranks, 37, 1, false);
  check_sum<TestType>(fsdp::cuda::kMostSummedRanks, 5, 0, false);
  if constexpr (!std::is_integral_v<TestType>) {
    check_sum<TestType>(3, 33, 0, true);
    check_sum<TestType>(4, 33, 1, true);
  }
}
