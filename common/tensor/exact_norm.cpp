#include "tensor/exact_norm.h"

#include "tensor/cast.h"
#include "tensor/operands.h"
#include "tensor/simd.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

namespace fsdp {
namespace {

constexpr std::int64_t kExponents = 256;
constexpr std::int64_t kInfinities = 2 * kExponents;
constexpr std::int64_t kNans = kInfinities + 1;
constexpr std::uint32_t kMantissaBits = 23;
constexpr std::uint32_t kMantissa = (1u << kMantissaBits) - 1;
constexpr std::int64_t kLimb = (1 << 24) - 1;

/// Elements of a piece, and of a block within it.
constexpr std::int64_t kPiece = 65536, kBlock = 2048;

/// The counters of one piece. Counter e counts squares in units of 2^(2 (e - 150)), e = 1 … 254;
/// that of 0 is the same as that of 1.
class PieceCounters {
 public:
  void add_units(std::int64_t exponent, std::int64_t units) {
    low_[exponent] += units & kLimb;
    high_[exponent] += units >> 24;
  }

  /// One value, whatever it is.
  void add(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t exponent = (bits >> kMantissaBits) & 0xff;
    const std::uint32_t fraction = bits & kMantissa;
    if (exponent == 0xff) {
      ++(fraction == 0 ? infinities_ : nans_);
      return;
    }
    // Subnormal numbers have no hidden bit; they share the exponent of 1.
    const std::int64_t mantissa = fraction | (exponent == 0 ? 0 : kMantissa + 1);
    add_units(exponent, mantissa * mantissa);
  }

  void merge_into(std::int64_t* shared) const {
    const auto add_to = [=](std::int64_t at, std::int64_t value) {
      if (value == 0) return;
      std::atomic_ref<std::int64_t>(shared[at]).fetch_add(value, std::memory_order_relaxed);
    };
    for (std::int64_t e = 0; e < kExponents; ++e) {
      add_to(e, low_[e]);
      add_to(kExponents + e, high_[e]);
    }
    add_to(kInfinities, infinities_);
    add_to(kNans, nans_);
  }

 private:
  std::int64_t low_[kExponents] = {}, high_[kExponents] = {}, infinities_ = 0, nans_ = 0;
};

/// The largest exponent field of `count` floats.
std::int64_t largest_exponent(const float* values, std::int64_t count) {
  simd::Mask<float> top = {};
  simd::for_lanes<float>(count, [&](std::int64_t i, auto some) {
    const simd::Mask<float> bits =
        std::bit_cast<simd::Mask<float>>(simd::load_n<float>(values + i, some)) & 0x7fffffff;
    top = bits > top ? bits : top;
  });
  std::int32_t largest = 0;
  for (int i = 0; i < simd::kLanes<float>; ++i) largest = std::max<std::int32_t>(largest, top[i]);
  return largest >> kMantissaBits;
}

using Doubles = simd::Vec<double>;

Doubles squares_of(const float* values) {
  float __attribute__((vector_size(16))) four;
  std::memcpy(&four, values, sizeof four);
  const Doubles wide = __builtin_convertvector(four, Doubles);
  return wide * wide;  // 48 bits: exact
}

/// Adds a block whose squares lie within 80 bits of one another, four at a time, without
/// rounding: the
/// upper 40 bits of all squares are whole multiples of one unit and so are their sums (2^11 of them
/// fit a double), and so are the lower 40. @return false, and nothing done, if a square has bits
/// left.
///
///     square   |<---- upper 40 ---->|<---- lower 40 ---->|
///                              2^upper              2^lower
bool add_close_values(PieceCounters& counters, const float* values, std::int64_t count) {
  const std::int64_t exponent = largest_exponent(values, count);
  if (exponent == 0xff) return false;
  const auto upper = static_cast<int>(2 * (exponent - 126)) - 40, lower = upper - 40;
  const std::int64_t upper_counter = upper / 2 + 150, lower_counter = lower / 2 + 150;
  if (lower_counter < 1 || upper_counter >= kExponents - 1) return false;
  // Adding 1.5 * 2^52 units and taking them away again rounds to whole units.
  const Doubles to_upper = simd::splat<double>(std::ldexp(1.5, 52 + upper));
  const Doubles to_lower = simd::splat<double>(std::ldexp(1.5, 52 + lower));
  Doubles upper_sum[4] = {}, lower_sum[4] = {};
  simd::Mask<double> rest = {};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    simd::unroll<4>([&](auto v) {
      const Doubles square = squares_of(values + i + 4 * v);
      const Doubles high = (square + to_upper) - to_upper;
      const Doubles remainder = square - high;
      const Doubles low = (remainder + to_lower) - to_lower;
      rest |= remainder != low;
      upper_sum[v] += high;
      lower_sum[v] += low;
    });
  }
  for (int k = 0; k < simd::kLanes<double>; ++k) {
    if (rest[k] != 0) return false;
  }
  std::int64_t upper_units = 0, lower_units = 0;
  const double per_upper = std::ldexp(1.0, -upper), per_lower = std::ldexp(1.0, -lower);
  for (int v = 0; v < 4; ++v) {
    for (int k = 0; k < simd::kLanes<double>; ++k) {
      upper_units += static_cast<std::int64_t>(upper_sum[v][k] * per_upper);
      lower_units += static_cast<std::int64_t>(lower_sum[v][k] * per_lower);
    }
  }
  counters.add_units(upper_counter, upper_units);
  counters.add_units(lower_counter, lower_units);
  for (; i < count; ++i) counters.add(values[i]);
  return true;
}

void count_piece(PieceCounters& counters, const float* values, std::int64_t count, float factor) {
  float scaled[kBlock];
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    const float* block = values + begin;
    if (factor != 1) {
      for (std::int64_t i = 0; i < length; ++i) scaled[i] = block[i] * factor;
      block = scaled;
    }
    if (add_close_values(counters, block, length)) continue;
    for (std::int64_t i = 0; i < length; ++i) counters.add(block[i]);
  }
}

/// A whole number of 2^-298, the square of the smallest float: 11 digits of 64 bits hold the sum of
/// 2^39 squares of the largest.
class WideInteger {
 public:
  /// Adds value * 2^shift; between additions the sum may be negative, modulo 2^704.
  void add(std::int64_t value, int shift) {
    const auto word = static_cast<std::size_t>(shift / 64);
    const int bit = shift % 64;
    const std::uint64_t sign = value < 0 ? ~std::uint64_t{0} : 0;
    const auto digits = static_cast<std::uint64_t>(value);
    std::uint64_t carry = 0;
    for (std::size_t i = word; i < digits_.size(); ++i) {
      std::uint64_t addend = sign;
      if (i == word) addend = digits << bit;
      if (i == word + 1 && bit != 0) addend = (digits >> (64 - bit)) | (sign << bit);
      const std::uint64_t sum = digits_[i] + addend;
      const std::uint64_t with_carry = sum + carry;
      carry = (sum < addend ? 1u : 0u) + (with_carry < sum ? 1u : 0u);
      digits_[i] = with_carry;
    }
  }
  /// Rounded once, to nearest even, times 2^scale.
  double to_double(int scale) const {
    std::size_t top = digits_.size();
    while (top > 0 && digits_[top - 1] == 0) --top;
    if (top == 0) return 0;
    const int zeros = std::countl_zero(digits_[top - 1]);
    std::uint64_t leading = digits_[top - 1] << zeros;
    std::uint64_t rest = 0;
    if (top > 1) {
      if (zeros > 0) leading |= digits_[top - 2] >> (64 - zeros);
      rest = zeros > 0 ? digits_[top - 2] << zeros : digits_[top - 2];
      for (std::size_t i = 0; i + 2 < top; ++i) rest |= digits_[i];
    }
    // What was cut off can only matter as "not exactly half".
    if (rest != 0) leading |= 1;
    return std::ldexp(static_cast<double>(leading), scale + static_cast<int>(top - 1) * 64 - zeros);
  }

 private:
  std::array<std::uint64_t, 11> digits_{};
};

/// ExactSquareSum::add(), with counters that are where the values are.
void add_squares(const Tensor& counters, const Tensor& values, float factor) {
  dispatch(values.device(), costs::add_squares(values.numel()), [&] {
    static_assert(sizeof(PieceCounters) <= kScratchBytes);
    const float* data = values.data<float>();
    auto* shared = counters.data<std::int64_t>();
    ops::parallel_ranges(values.numel(), kPiece,
                         [=](std::int64_t begin, std::int64_t end, std::byte* scratch) {
                           auto& piece = *new (scratch) PieceCounters;
                           count_piece(piece, data + begin, end - begin, factor);
                           piece.merge_into(shared);  // integers: in any order
                         });
  });
}

}  // namespace

ExactSquareSum::ExactSquareSum(double factor) : factor_(static_cast<float>(factor)) {
  const AllocationScope scope(MemoryKind::temp);
  counters_ = Tensor::zeros({kCounters}, DType::int64);
}

void ExactSquareSum::add(const Tensor& values) {
  FSDP_CHECK(values.is_defined() && values.dtype() == DType::float32 && values.is_contiguous(),
             "ExactSquareSum adds contiguous float32 tensors");
  if (is_accelerated(values.device())) {
    return device_kernels().add_squares(counters_, values, factor_);
  }
  if (values.device().type == counters_.device().type) {
    return add_squares(counters_, values, factor_);
  }
  // The host adds values of its own; the counters stay where they are summed over the ranks.
  FSDP_CHECK(values.device().host_can_read() && is_accelerated(counters_.device()),
             "the counters are on {}, but the values are on {}", to_string(counters_.device()),
             to_string(values.device()));
  const AllocationScope scope(MemoryKind::temp);
  const Tensor counters = on_host(counters_);
  add_squares(counters, values, factor_);
  Context::current().rank_device().write(counters_.raw(), counters.raw(), counters.nbytes());
}

double ExactSquareSum::value() const {
  if (!counters_.device().has_data()) return 0;
  const std::vector<std::int64_t> counters = counters_.to_vector<std::int64_t>();
  const std::int64_t* const counter = counters.data();
  if (counter[kNans] != 0) return std::numeric_limits<double>::quiet_NaN();
  if (counter[kInfinities] != 0) return std::numeric_limits<double>::infinity();
  WideInteger sum;
  for (std::int64_t e = 0; e < kExponents - 1; ++e) {
    const int shift = 2 * static_cast<int>(e == 0 ? 0 : e - 1);
    sum.add(counter[e], shift);
    sum.add(counter[kExponents + e], shift + 24);
  }
  return sum.to_double(-298);
}

}  // namespace fsdp
