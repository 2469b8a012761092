/// @file
/// @ingroup tensor
/// Random and constant initialization: element i needs only the word (seed, begin + i).
#pragma once

#include "tensor/tensor.h"

#include <cstdint>
#include <string>

namespace fsdp {

/// How to initialize a parameter. It is a value, so that you can keep it and apply it later,
/// elsewhere, or to a slice only.
struct InitSpec {
  enum class Kind { zeros, ones, uniform, truncated_normal } kind = Kind::zeros;
  double mean = 0;
  double std = 1;  ///< truncated_normal
  double cut = 3;  ///< truncated_normal: values lie in mean ± cut*std
  double low = 0;  ///< uniform
  double high = 1;
  std::int64_t zero_begin = 0;  ///< elements [zero_begin, zero_end) are zero, whatever is drawn
  std::int64_t zero_end = 0;

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

/// Writes elements [begin, begin + out.numel()) of a parameter initialized by `spec` from the words
/// (seed, stream_begin + i). `out` is contiguous; only this slice is touched or computed.
///
/// A normal value is drawn by inverse CDF: one word, its upper 24 bits, a fixed rational polynomial
/// in double with only +, ×, ÷, √ (no libm, no contraction), rounded once. So every compiler and
/// device gives the same bits. Accuracy of the quantile: 1e-9 relative in the kept range.
void init_slice(const Tensor& out, const InitSpec& spec, std::uint64_t seed,
                std::uint64_t stream_begin, std::int64_t begin);

}  // namespace fsdp
