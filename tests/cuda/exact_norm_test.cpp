// The kernel of tensor/cuda/exact_norm.cu counts squares exactly.
#include "tensor/cuda/exact_norm.h"

#include "cuda/bits.h"
#include "tensor/exact_norm.h"

#include <bit>
#include <limits>

using namespace cuda_test;
using fsdp::DType;
using fsdp::ExactSquareSum;
using fsdp::Tensor;
namespace cuda = fsdp::cuda;
namespace ops = fsdp::ops;

namespace {

/// The sum of squares that the device counts when it adds the values in two calls, cut at `cut`.
double counted(std::size_t round, const std::vector<float>& values, std::int64_t cut,
               float factor = 1) {
  const auto n = static_cast<std::int64_t>(values.size());
  const Outputs outputs = run_in_turn(round, [&](cudaStream_t stream) {
    const std::vector<std::int64_t> zeros(ExactSquareSum::kCounters);
    DeviceValues<std::int64_t> counters(stream, zeros, 0);
    DeviceValues<float> in(stream, values, static_cast<std::int64_t>(round % 2));
    cuda::add_exact_squares(stream, counters.data(), in.data(), cut, factor);
    cuda::add_exact_squares(stream, counters.data(), in.data() + cut, n - cut, factor);
    in.drop();
    return Outputs{counters.take({ExactSquareSum::kCounters})};
  });
  const ExactSquareSum sum;
  ops::copy(sum.counters(), outputs[0]);
  return sum.value();
}

void check_squares(const std::vector<float>& values, float factor = 1) {
  const auto n = static_cast<std::int64_t>(values.size());
  ExactSquareSum expected(factor);
  expected.add(on_cpu(values, {n}));
  const std::int64_t cuts[] = {0, n / 3};
  for (std::size_t round = 0; round < 4; ++round) {
    INFO("n = " << n << ", round " << round);
    const double sum = counted(round, values, cuts[round / 2], factor);
    CHECK(std::bit_cast<std::uint64_t>(sum) == std::bit_cast<std::uint64_t>(expected.value()));
  }
}

/// Finite floats whose exponent fields lie in [low, low + span).
std::vector<float> floats_of(std::int64_t n, std::uint32_t low, std::uint32_t span) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto index = 2 * static_cast<std::uint64_t>(i);
    const std::uint32_t word = fsdp::random_word(5, index);
    const std::uint32_t field = low + fsdp::random_word(5, index + 1) % span;
    result.push_back(std::bit_cast<float>((word & 0x807fffffU) | field << 23U));
  }
  return result;
}

}  // namespace

TEST_CASE("squares on CUDA memory are counted exactly", "[kernels]") {
  for (const std::int64_t n : {1, 31, 513, 5003, 20001}) {
    check_squares(rough<float>(n, 1));
    check_squares(floats_of(n, 110, 21));  // all within the two units of a warp
    check_squares(floats_of(n, 110, 22));  // and one exponent more
    check_squares(floats_of(n, 0, 255));   // all finite floats
  }
}

TEST_CASE("squares at the ends of the exponents are counted exactly on CUDA memory", "[kernels]") {
  check_squares(std::vector<float>(1029, 0.0F));
  check_squares(std::vector<float>(1029, std::numeric_limits<float>::denorm_min()));
  check_squares(std::vector<float>(1029, std::numeric_limits<float>::max()));
  check_squares(floats_of(1029, 0, 1));
  check_squares(floats_of(1029, 0, 2));
  check_squares(floats_of(1029, 19, 4));
  check_squares(floats_of(1029, 10, 11));  // the lower unit would be that of the exponent 0
  check_squares(floats_of(1029, 232, 23));
}

TEST_CASE("squares on CUDA memory are those of the values times a factor", "[kernels]") {
  for (const float factor : {1.0F / 3, 0x1p-20F, 0.75F}) {
    check_squares(rough<float>(5003, 1), factor);
    check_squares(floats_of(1029, 0, 40), factor);  // subnormal, some only then
    check_squares(floats_of(5003, 0, 255), factor);
  }
}

TEST_CASE("a single infinity or NaN on CUDA memory is counted", "[kernels]") {
  for (const std::size_t place : {0U, 700U, 1028U}) {
    std::vector<float> values = rough<float>(1029, 1);
    values[place] = -INFINITY;
    CHECK(counted(place, values, 3) == INFINITY);
    values[5] = NAN;
    CHECK(std::isnan(counted(place, values, 3)));
  }
}

TEST_CASE("counting no value on CUDA memory changes nothing", "[kernels]") {
  CHECK(counted(0, {}, 0) == 0);
}
