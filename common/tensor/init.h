/// @file
/// @ingroup tensor
/// Random and constant initialisation: element i needs the word (seed, begin + i) and nothing else.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>
#include <string>

namespace fsdp {

/// How a parameter is to be initialised. A value, so that it can be remembered and carried out
/// later, elsewhere, or for a slice only.
struct InitSpec {
  enum class Kind { zeros, ones, uniform, truncated_normal } kind = Kind::zeros;
  double mean = 0;
  double std = 1;  ///< truncated_normal
  double cut = 3;  ///< truncated_normal: values lie in mean ± cut*std
  double low = 0;  ///< uniform
  double high = 1;

  bool is_random() const { return kind == Kind::uniform || kind == Kind::truncated_normal; }
  static InitSpec zeros() { return {}; }
  static InitSpec ones() { return {.kind = Kind::ones}; }
  static InitSpec truncated_normal(double std, double cut = 3) {
    return {.kind = Kind::truncated_normal, .std = std, .cut = cut};
  }
  static InitSpec uniform(double low, double high) {
    return {.kind = Kind::uniform, .low = low, .high = high};
  }
};

/// Writes elements [begin, begin + out.numel()) of a parameter that was initialised by `spec` from
/// the words (seed, stream_begin + i). `out` is contiguous; only this slice is touched or computed.
///
/// A normal value is drawn by inverse CDF (one word, its upper 24 bits, a fixed rational polynomial
/// in double with +, ×, ÷, √ alone, no libm, no contraction), rounded once: the same bits from
/// every compiler and device. Accuracy of the quantile: 1e-9 relative in the kept range.
void init_slice(const Tensor& out, const InitSpec& spec, std::uint64_t seed,
                std::uint64_t stream_begin, std::int64_t begin);

}  // namespace fsdp
