/// @file
/// @ingroup tensor
/// What the kernels of a training cost (ops.h): a function of its namesake's extents, which a call
/// on the fake device and a walk on paper ask alike. `size`: bytes of an element.
#pragma once

#include "base/clock.h"

#include <cstddef>
#include <cstdint>

namespace fsdp::costs {

/// A kernel that moves `elements` values and computes `flops`.
inline Cost of(double flops, double elements, std::size_t size) {
  return {.flops = flops, .nbytes = elements * static_cast<double>(size), .is_half = size == 2};
}
/// A kernel over n elements: so many operations, and elements read and written, for each.
inline Cost each(double flops, double moved, std::int64_t n, std::size_t size) {
  return of(flops * static_cast<double>(n), moved * static_cast<double>(n), size);
}

inline Cost fill(std::int64_t n, std::size_t size) { return each(0, 1, n, size); }
/// Between formats too.
inline Cost copy(std::int64_t bytes_read, std::int64_t bytes_written) {
  return {.nbytes = static_cast<double>(bytes_read) + static_cast<double>(bytes_written)};
}
inline Cost add(std::int64_t n, std::size_t size) { return each(1, 3, n, size); }
inline Cost scale(std::int64_t n, std::size_t size) { return each(1, 2, n, size); }

/// op(a) (m, k) by op(b) (k, n).
inline Cost matmul(std::int64_t m, std::int64_t n, std::int64_t k, std::size_t size) {
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return of(flops, static_cast<double>(m * n + m * k + k * n), size);
}

/// n elements of the output.
inline Cost embedding(std::int64_t n, std::size_t size) { return each(0, 2, n, size); }
/// @param cleared elements of the table's gradient, if it is written and not added to
inline Cost embedding_backward(std::int64_t n, std::int64_t cleared, std::size_t size) {
  return of(static_cast<double>(n), 3 * static_cast<double>(n) + static_cast<double>(cleared),
            size);
}

inline Cost rms_norm(std::int64_t n, std::size_t size) { return each(4, 2, n, size); }
inline Cost add_rms_norm(std::int64_t n, std::size_t size) { return each(5, 4, n, size); }
inline Cost rms_norm_backward(std::int64_t n, std::size_t size) { return each(10, 5, n, size); }
inline Cost rope(std::int64_t n, std::size_t size) { return each(3, 2, n, size); }
inline Cost swiglu(std::int64_t n, std::size_t size) { return each(20, 3, n, size); }
inline Cost swiglu_backward(std::int64_t n, std::size_t size) { return each(25, 5, n, size); }
/// n logits, alone or with their gradient.
inline Cost cross_entropy(std::int64_t n, bool with_gradient, std::size_t size) {
  return with_gradient ? each(27, 2, n, size) : each(15, 1, n, size);
}

/// q (B, T', H, D), k and v (B, T, G, D).
struct Heads {
  std::int64_t batch;     ///< B
  std::int64_t queries;   ///< T', the last ones of T
  std::int64_t length;    ///< T
  std::int64_t heads;     ///< H
  std::int64_t kv_heads;  ///< G
  std::int64_t width;     ///< D
};
/// `products` products of (T', T) by D a head, without what is masked away; q and k count for what
/// has their shape, so `tensors` times each.
inline Cost attention_products(const Heads& e, double products, std::int64_t tensors,
                               std::size_t size) {
  const std::int64_t q = e.batch * e.queries * e.heads, k = e.batch * e.length * e.kv_heads;
  const double flops = products * static_cast<double>(q) *
                       static_cast<double>((2 * e.length - e.queries + 1) * e.width);
  return of(flops, static_cast<double>(tensors * (q + k) * e.width + q), size);
}
inline Cost attention(const Heads& e, std::size_t size) {
  return attention_products(e, 2, 2, size);
}
inline Cost attention_backward(const Heads& e, std::size_t size) {
  return attention_products(e, 5, 4, size);
}

/// Into an ExactSquareSum.
inline Cost add_squares(std::int64_t n) { return each(2, 1, n, sizeof(float)); }
/// An optimizer's step. All but the gradient are read and written.
/// @param flops per element @param states tensors of state
inline Cost update(std::int64_t n, double flops, std::size_t states, std::size_t size) {
  return each(flops, 3 + 2 * static_cast<double>(states), n, size);
}

/// The counters of an ExactSquareSum, which one all_reduce sums.
inline constexpr std::int64_t kSquareCounters = 2 * 256 + 2;

}  // namespace fsdp::costs
