#include "tensor/column_sums.h"
#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

#include <cmath>

namespace fsdp::ops {
namespace {

/// Σ_j term(j): four vectors of partial sums, so that additions do not wait for one another.
template <class T, class Term>
Wide<T> row_sum(std::int64_t width, Term term) {
  constexpr std::int64_t kLanes = simd::kLanes<T>;
  simd::Vec<T> partial[4] = {};
  constexpr std::integral_constant<std::int64_t, kLanes> kFull;
  std::int64_t j = 0;
  for (; j + 4 * kLanes <= width; j += 4 * kLanes) {
    for (std::int64_t v = 0; v < 4; ++v) partial[v] += term(j + v * kLanes, kFull);
  }
  simd::for_lanes<T>(width - j,
                     [&](std::int64_t i, auto count) { partial[0] += term(j + i, count); });
  return simd::sum<T>((partial[0] + partial[1]) + (partial[2] + partial[3]));
}

template <class T>
void forward_row(T* out, Wide<T>* rstd, const T* x, const T* weight, std::int64_t width,
                 Wide<T> eps) {
  const Wide<T> squares = row_sum<T>(width, [=](std::int64_t j, auto count) {
    const simd::Vec<T> v = simd::load_n<T>(x + j, count);
    return v * v;
  });
  *rstd = 1 / std::sqrt(squares / static_cast<Wide<T>>(width) + eps);
  const simd::Vec<T> factor = simd::splat<T>(*rstd);
  simd::for_lanes<T>(width, [=](std::int64_t j, auto count) {
    simd::store_n<T>(out + j,
                     simd::load_n<T>(x + j, count) * factor * simd::load_n<T>(weight + j, count),
                     count);
  });
}

/// dx = rstd * (w dy - x̂ mean(w dy x̂)), x̂ = x rstd.
template <class T>
void backward_row(T* dx, Write mode, const T* dy, const T* x, const T* weight, Wide<T> rstd,
                  std::int64_t width) {
  const Wide<T> dot = row_sum<T>(width, [=](std::int64_t j, auto count) {
    return simd::load_n<T>(dy + j, count) * simd::load_n<T>(weight + j, count) *
           simd::load_n<T>(x + j, count);
  });
  const simd::Vec<T> factor = simd::splat<T>(rstd);
  const simd::Vec<T> along = simd::splat<T>(dot * rstd * rstd * rstd / static_cast<Wide<T>>(width));
  simd::for_lanes<T>(width, [=](std::int64_t j, auto count) {
    const simd::Vec<T> scaled =
        simd::load_n<T>(dy + j, count) * simd::load_n<T>(weight + j, count) * factor;
    simd::Vec<T> value = scaled - simd::load_n<T>(x + j, count) * along;
    if (mode == Write::add) value = simd::load_n<T>(dx + j, count) + value;
    simd::store_n<T>(dx + j, value, count);
  });
}

}  // namespace

void rms_norm(const Tensor& out, const Tensor& rstd, const Tensor& x, const Tensor& weight,
              double eps) {
  Operands args("rms_norm");
  args.expect_dims("x", x, 2);
  const std::int64_t rows = x.size(0), width = x.size(1);
  args.expect("x", x, {rows, width}).expect("out", out, {rows, width});
  args.expect("weight", weight, {width}).expect_wide("rstd", rstd, {rows});
  if (is_accelerated(args.device())) return accelerated<rms_norm>(out, rstd, x, weight, eps);
  args.compute(costs::rms_norm(x.numel(), args.size()), [&]<class T>(T) {
    const T* from = x.data<T>();
    const T* w = weight.data<T>();
    T* to = out.data<T>();
    auto* scale = rstd.data<Wide<T>>();
    parallel_ranges(rows, row_grain(width), [=](std::int64_t begin, std::int64_t end, std::byte*) {
      for (std::int64_t r = begin; r < end; ++r) {
        forward_row(to + r * width, scale + r, from + r * width, w, width,
                    static_cast<Wide<T>>(eps));
      }
    });
  });
}

void add_rms_norm(const Tensor& out, const Tensor& rstd, const Tensor& sum, const Tensor& x,
                  const Tensor& y, const Tensor& weight, double eps) {
  Operands args("add_rms_norm");
  args.expect_dims("x", x, 2);
  const std::int64_t rows = x.size(0), width = x.size(1);
  args.expect("x", x, {rows, width}).expect("y", y, {rows, width});
  args.expect("sum", sum, {rows, width}).expect("out", out, {rows, width});
  args.expect("weight", weight, {width}).expect_wide("rstd", rstd, {rows});
  if (is_accelerated(args.device()))
    return accelerated<add_rms_norm>(out, rstd, sum, x, y, weight, eps);
  args.compute(costs::add_rms_norm(x.numel(), args.size()), [&]<class T>(T) {
    const T* first = x.data<T>();
    const T* second = y.data<T>();
    const T* w = weight.data<T>();
    T* total = sum.data<T>();
    T* to = out.data<T>();
    auto* scale = rstd.data<Wide<T>>();
    parallel_ranges(rows, row_grain(width), [=](std::int64_t begin, std::int64_t end, std::byte*) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t at = r * width;
        simd::for_lanes<T>(width, [=](std::int64_t j, auto count) {
          const auto added =
              simd::load_n<T>(first + at + j, count) + simd::load_n<T>(second + at + j, count);
          simd::store_n<T>(total + at + j, added, count);
        });
        forward_row(to + at, scale + r, total + at, w, width, static_cast<Wide<T>>(eps));
      }
    });
  });
}

void rms_norm_backward(const Tensor& dx, Write write_dx, const Tensor& dweight, Write write_dweight,
                       const Tensor& dout, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd) {
  Operands args("rms_norm_backward");
  args.expect_dims("x", x, 2);
  const std::int64_t rows = x.size(0), width = x.size(1);
  args.expect("x", x, {rows, width}).expect("dout", dout, {rows, width});
  args.expect("weight", weight, {width}).expect_wide("rstd", rstd, {rows});
  if (dx.is_defined()) args.expect("dx", dx, {rows, width});
  if (dweight.is_defined()) args.expect("dweight", dweight, {width});
  if (is_accelerated(args.device()))
    return accelerated<rms_norm_backward>(dx, write_dx, dweight, write_dweight, dout, x, weight,
                                          rstd);
  args.compute(costs::rms_norm_backward(x.numel(), args.size()), [&]<class T>(T) {
    const T* from = x.data<T>();
    const T* w = weight.data<T>();
    const T* dy = dout.data<T>();
    const auto* scale = rstd.data<Wide<T>>();
    // The weight's gradient first: dx may overwrite dout.
    if (dweight.is_defined()) {
      sum_columns(
          dweight.data<T>(), rows, width, write_dweight,
          [=](std::int64_t r, std::int64_t j, auto count) {
            return simd::load_n<T>(dy + r * width + j, count) *
                   (simd::load_n<T>(from + r * width + j, count) * simd::splat<T>(scale[r]));
          });
    }
    if (!dx.is_defined()) return;
    T* to = dx.data<T>();
    parallel_ranges(rows, row_grain(width), [=](std::int64_t begin, std::int64_t end, std::byte*) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t at = r * width;
        backward_row(to + at, write_dx, dy + at, from + at, w, scale[r], width);
      }
    });
  });
}

}  // namespace fsdp::ops
