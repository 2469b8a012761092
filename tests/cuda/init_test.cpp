// The kernels of tensor/cuda/init.cu draw the CPU's bits.
#include "tensor/cuda/init.h"

#include "cuda/bits.h"
#include "tensor/init.h"
#include "tensor/normal_quantile.h"

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Float16;
using fsdp::InitSpec;
using fsdp::Tensor;
namespace cuda = fsdp::cuda;

namespace {

// All bits of the seed and of the place count. The second slice begins before 2^34, where the
// counter's second word begins, and ends behind it.
constexpr std::uint64_t kDrawnSeed = 0x9'0000'0007;
constexpr std::uint64_t kDrawnStreams[] = {12, (std::uint64_t{1} << 34) - 100};

template <class T>
void check_drawn_slices(
    const InitSpec& spec,
    const std::function<void(cudaStream_t, T*, std::int64_t, std::uint64_t)>& draw) {
  for (const std::uint64_t stream_begin : kDrawnStreams) {
    // Every phase of a block of four words, in slices that fit none.
    for (const std::int64_t begin : {0, 1, 2, 3, 102}) {
      for (const std::int64_t n : {1, 6, 1029}) {
        INFO("words from " << stream_begin << ", element " << begin << ", n = " << n);
        check_same_bits<T>(
            {rough_operand<T>({n}, 1)},
            [&](const Tensors& t) {
              fsdp::init_slice(t[0], spec, kDrawnSeed, stream_begin, begin);
            },
            [&](cudaStream_t s, const Pointers<T>& p) {
              draw(s, p[0], n, stream_begin + static_cast<std::uint64_t>(begin));
            });
      }
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("uniform values drawn on CUDA memory have the CPU's bits", "[kernels]", float,
                   BFloat16, Float16) {
  const InitSpec spec = InitSpec::uniform(-0.3, 1.1);
  check_drawn_slices<TestType>(
      spec, [&](cudaStream_t s, TestType* out, std::int64_t n, std::uint64_t first) {
        cuda::draw_uniform(s, out, n, kDrawnSeed, first, spec.low, spec.high - spec.low);
      });
}

TEMPLATE_TEST_CASE("normal values drawn on CUDA memory have the CPU's bits", "[kernels]", float,
                   BFloat16, Float16) {
  InitSpec spec = InitSpec::truncated_normal(0.02, 5);
  spec.mean = 0.001;
  check_drawn_slices<TestType>(
      spec, [&](cudaStream_t s, TestType* out, std::int64_t n, std::uint64_t first) {
        cuda::draw_truncated_normal(s, out, n, kDrawnSeed, first, spec.mean, spec.std,
                                    fsdp::normal_mass_within(spec.cut));
      });
}

TEMPLATE_TEST_CASE("a value drawn on CUDA memory is rounded to 16 bits once", "[kernels]", BFloat16,
                   Float16) {
  // The first element that two roundings, by way of float32, would change.
  const InitSpec spec = InitSpec::uniform(0.3, 0.7);
  std::uint64_t index = 0;
  for (;; ++index) {
    const std::uint32_t word = fsdp::random_word(kDrawnSeed, index);
    const double u = (static_cast<double>(word >> 8) + 0.5) * 0x1p-24;
    const double value = spec.low + u * (spec.high - spec.low);
    if (TestType(value).bits != TestType(static_cast<float>(value)).bits) break;
  }
  const auto begin = static_cast<std::int64_t>(index);
  check_same_bits<TestType>(
      {rough_operand<TestType>({1}, 1)},
      [&](const Tensors& t) { fsdp::init_slice(t[0], spec, kDrawnSeed, 0, begin); },
      [&](cudaStream_t s, const Pointers<TestType>& p) {
        cuda::draw_uniform(s, p[0], 1, kDrawnSeed, index, spec.low, spec.high - spec.low);
      });
}
