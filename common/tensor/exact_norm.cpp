#include "tensor/exact_norm.h"

#include "tensor/operands.h"

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace fsdp {
namespace {

constexpr std::int64_t kExponents = 256;
constexpr std::int64_t kInfinities = 2 * kExponents;
constexpr std::int64_t kNans = kInfinities + 1;
constexpr std::uint32_t kMantissaBits = 23;
constexpr std::uint32_t kMantissa = (1u << kMantissaBits) - 1;
constexpr std::uint64_t kLimb = (1u << 24) - 1;

/// Elements of a piece: 2^16 squares of 48 bits just fit one 64-bit counter.
constexpr std::int64_t kPiece = 65536;
/// Neighbours mostly have the same exponent; counting them in turn in several tables keeps one
/// addition from waiting for the one before.
constexpr std::int64_t kTables = 4;

/// Sums of squared mantissas of one piece, exponent 255 being infinities and NaNs.
struct PieceCounters {
  std::uint64_t squares[kTables][kExponents];
  std::uint64_t infinities, nans;

  void add(std::uint32_t bits, std::int64_t table) {
    const std::uint32_t exponent = (bits >> kMantissaBits) & 0xff;
    const std::uint32_t fraction = bits & kMantissa;
    if (exponent == 0xff) [[unlikely]] {
      ++(fraction == 0 ? infinities : nans);
      return;
    }
    // Subnormal numbers have no hidden bit; they share the exponent of 1.
    const std::uint64_t mantissa = fraction | (exponent == 0 ? 0 : kMantissa + 1);
    squares[table][exponent] += mantissa * mantissa;
  }
};

void count_piece(PieceCounters& counters, const float* values, std::int64_t count) {
  std::memset(&counters, 0, sizeof counters);
  const auto bits_at = [=](std::int64_t i) { return std::bit_cast<std::uint32_t>(values[i]); };
  std::int64_t i = 0;
  for (; i + kTables <= count; i += kTables) {
    for (std::int64_t t = 0; t < kTables; ++t) counters.add(bits_at(i + t), t);
  }
  for (; i < count; ++i) counters.add(bits_at(i), 0);
}

void merge(std::int64_t* shared, const PieceCounters& counters) {
  const auto add_to = [=](std::int64_t at, std::uint64_t value) {
    if (value == 0) return;
    std::atomic_ref<std::int64_t>(shared[at])
        .fetch_add(static_cast<std::int64_t>(value), std::memory_order_relaxed);
  };
  for (std::int64_t e = 0; e < kExponents; ++e) {
    std::uint64_t low = 0, high = 0;
    for (std::int64_t t = 0; t < kTables; ++t) {
      low += counters.squares[t][e] & kLimb;
      high += counters.squares[t][e] >> 24;
    }
    add_to(e, low);
    add_to(kExponents + e, high);
  }
  add_to(kInfinities, counters.infinities);
  add_to(kNans, counters.nans);
}

/// A whole number of 2^-298, the square of the smallest float: 11 digits of 64 bits hold the sum of
/// 2^39 squares of the largest.
class WideInteger {
 public:
  /// Adds value * 2^shift.
  void add(std::uint64_t value, int shift) {
    const auto word = static_cast<std::size_t>(shift / 64);
    const int bit = shift % 64;
    add_at(word, value << bit);
    if (bit != 0) add_at(word + 1, value >> (64 - bit));
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
  void add_at(std::size_t word, std::uint64_t value) {
    while (value != 0 && word < digits_.size()) {
      digits_[word] += value;
      value = digits_[word] < value ? 1 : 0;
      ++word;
    }
  }
  std::array<std::uint64_t, 11> digits_{};
};

}  // namespace

ExactSquareSum::ExactSquareSum() {
  const AllocationScope scope(MemoryKind::temp);
  counters_ = Tensor::zeros({kCounters}, DType::int64);
}

void ExactSquareSum::add(const Tensor& values) {
  FSDP_CHECK(values.is_defined() && values.dtype() == DType::float32 && values.is_contiguous(),
             "ExactSquareSum adds contiguous float32 tensors");
  FSDP_CHECK(values.device() == counters_.device(), "counters on {}, values on {}",
             to_string(counters_.device()), to_string(values.device()));
  const auto n = static_cast<double>(values.numel());
  dispatch(values.device(), Cost{.flops = 2 * n, .nbytes = 4 * n}, [&] {
    static_assert(sizeof(PieceCounters) <= ThreadPool::kScratchBytes);
    const float* data = values.data<float>();
    std::int64_t* shared = counters_.data<std::int64_t>();
    ops::parallel_ranges(values.numel(), kPiece,
                         [=](std::int64_t begin, std::int64_t end, std::byte* scratch) {
                           auto& counters = *reinterpret_cast<PieceCounters*>(scratch);
                           count_piece(counters, data + begin, end - begin);
                           merge(shared, counters);  // integers: in any order
                         });
  });
}

double ExactSquareSum::value() const {
  if (!counters_.device().has_data()) return 0;
  const std::int64_t* counter = counters_.data<std::int64_t>();
  if (counter[kNans] != 0) return std::numeric_limits<double>::quiet_NaN();
  if (counter[kInfinities] != 0) return std::numeric_limits<double>::infinity();
  WideInteger sum;
  for (std::int64_t e = 0; e < kExponents - 1; ++e) {
    const int shift = 2 * static_cast<int>(e == 0 ? 0 : e - 1);
    sum.add(static_cast<std::uint64_t>(counter[e]), shift);
    // Two steps, so that no bit of the high limb leaves the 64 of one value.
    sum.add(static_cast<std::uint64_t>(counter[kExponents + e]), shift + 24);
  }
  return sum.to_double(-298);
}

}  // namespace fsdp
