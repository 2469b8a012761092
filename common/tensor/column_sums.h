/// @file
/// @ingroup tensor
/// Sums over the rows of a matrix, one per column: the gradient of all values that rows share.
#pragma once

#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

namespace fsdp::ops {

/// out[j] (+)= Σ_r value(r, j), j in [0, width). `value(r, j, count)` gives the vector of columns
/// j, j+1, …. Threads divide the columns, so every column has one fixed order: groups of kRowGroup
/// rows, each summed from zero, are added one after another (two levels round less than one).
template <class T, class Value>
void sum_columns(T* out, std::int64_t rows, std::int64_t width, Write mode, Value value) {
  constexpr std::int64_t kVectors = 4, kRowGroup = 64;
  constexpr std::int64_t kLanes = simd::kLanes<T>;
  constexpr std::int64_t kBlock = kVectors * kLanes;
  parallel_ranges(width, kBlock, [&](std::int64_t begin, std::int64_t end, std::byte*) {
    simd::Vec<T> total[kVectors] = {};
    const bool full = end - begin == kBlock;
    for (std::int64_t group = 0; group < rows; group += kRowGroup) {
      simd::Vec<T> sum[kVectors] = {};
      const std::int64_t stop = std::min(rows, group + kRowGroup);
      if (full) {
        for (std::int64_t r = group; r < stop; ++r) {
          for (std::int64_t v = 0; v < kVectors; ++v) {
            sum[v] += value(r, begin + v * kLanes, std::integral_constant<std::int64_t, kLanes>{});
          }
        }
      } else {
        for (std::int64_t r = group; r < stop; ++r) {
          simd::for_lanes<T>(end - begin, [&](std::int64_t j, auto count) {
            sum[j / kLanes] += value(r, begin + j, count);
          });
        }
      }
      for (std::int64_t v = 0; v < kVectors; ++v) total[v] += sum[v];
    }
    simd::for_lanes<T>(end - begin, [&](std::int64_t j, auto count) {
      simd::Vec<T> sum = total[j / kLanes];
      if (mode == Write::add) sum = simd::load_n<T>(out + begin + j, count) + sum;
      simd::store_n<T>(out + begin + j, sum, count);
    });
  });
}

}  // namespace fsdp::ops
