#include "base/fixed_math.h"
#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace fsdp::ops {
namespace {

/// The number of rows that count.
std::int64_t check_targets(const char* op, const std::int32_t* targets, std::int64_t count,
                           std::int64_t vocabulary) {
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (targets[i] == kIgnoredTarget) continue;
    ++counted;
    FSDP_CHECK(targets[i] >= 0 && targets[i] < vocabulary,
               "{}: target {} at position {} is outside the vocabulary [0, {})", op, targets[i], i,
               vocabulary);
  }
  return counted;
}

/// log Σ_j e^x[j], reading memory once: chunks that fit the first-level cache, each first for its
/// maximum and then for its sum, which is rescaled when a later chunk raises the maximum.
template <class T>
Wide<T> log_sum_exp(const T* x, std::int64_t width) {
  constexpr std::int64_t kChunk = 2048, kLanes = simd::kLanes<T>;
  Wide<T> highest = std::numeric_limits<Wide<T>>::lowest();
  double total = 0;
  for (std::int64_t begin = 0; begin < width; begin += kChunk) {
    const T* chunk = x + begin;
    const std::int64_t n = std::min(kChunk, width - begin);
    const std::int64_t even = n - n % (2 * kLanes);
    simd::Vec<T> top[2] = {simd::splat<T>(highest), simd::splat<T>(highest)};
    for (std::int64_t j = 0; j < even; j += 2 * kLanes) {
      top[0] = simd::max<T>(top[0], simd::load<T>(chunk + j));
      top[1] = simd::max<T>(top[1], simd::load<T>(chunk + j + kLanes));
    }
    Wide<T> raised = simd::largest<T>(simd::max<T>(top[0], top[1]));
    for (std::int64_t j = even; j < n; ++j) {
      const auto value = static_cast<Wide<T>>(chunk[j]);
      raised = value > raised ? value : raised;
    }
    if (raised > highest) {
      total *= fixed::exp(static_cast<double>(highest) - static_cast<double>(raised));
      highest = raised;
    }
    const simd::Vec<T> shift = simd::splat<T>(highest);
    simd::Vec<T> partial[2] = {};
    for (std::int64_t j = 0; j < even; j += 2 * kLanes) {
      partial[0] += simd::exp_of_negative<T>(simd::load<T>(chunk + j) - shift);
      partial[1] += simd::exp_of_negative<T>(simd::load<T>(chunk + j + kLanes) - shift);
    }
    auto sum = static_cast<double>(simd::sum<T>(partial[0] + partial[1]));
    simd::for_lanes<T>(n - even, [&](std::int64_t j, auto count) {
      const simd::Vec<T> e =
          simd::exp_of_negative<T>(simd::load_n<T>(chunk + even + j, count) - shift);
      for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(e[i]);
    });
    total += sum;
  }
  return static_cast<Wide<T>>(static_cast<double>(highest) + fixed::log(total));
}

/// dlogits of a row that counts, over its logits or elsewhere; `factor` = dloss / (such rows).
template <class T>
void gradient_of_row(T* to, const T* from, std::int64_t target, Wide<T> log_sum, Wide<T> factor,
                     std::int64_t width) {
  const simd::Vec<T> shift = simd::splat<T>(log_sum), by = simd::splat<T>(factor);
  const auto weighted = [=](std::int64_t j, auto count) {
    return simd::exp_of_negative<T>(simd::load_n<T>(from + j, count) - shift) * by;
  };
  // Before its logit is overwritten.
  const Wide<T> of_target = weighted(target, std::int64_t{1})[0];
  simd::for_lanes<T>(width, [=](std::int64_t j, auto count) {
    simd::store_n<T>(to + j, weighted(j, count), count);
  });
  to[target] = static_cast<T>(of_target - factor);
}

}  // namespace

void cross_entropy(const Tensor& loss, const Tensor& losses, const Tensor& logits,
                   const Tensor& targets, const Tensor& dlogits, double dloss) {
  Operands args("cross_entropy");
  args.expect_dims("logits", logits, 2);
  const std::int64_t rows = logits.size(0), width = logits.size(1);
  args.expect("logits", logits, {rows, width}).expect_wide("losses", losses, {rows});
  args.expect_wide("loss", loss, {1});
  args.expect_indices("targets", targets, {rows});
  const bool with_gradient = dlogits.is_defined();
  if (with_gradient) args.expect("dlogits", dlogits, {rows, width});
  FSDP_CHECK(rows > 0, "cross_entropy: there are no rows to average over");
  if (is_accelerated(args.device()))
    return accelerated<cross_entropy>(loss, losses, logits, targets, dlogits, dloss);
  const Cost cost = costs::cross_entropy(logits.numel(), with_gradient, args.size());
  args.compute(cost, [&]<class T>(T) {
    const std::int32_t* target = targets.data<std::int32_t>();
    const std::int64_t counted = check_targets("cross_entropy", target, rows, width);
    const T* x = logits.data<T>();
    T* dx = with_gradient ? dlogits.data<T>() : nullptr;
    const Wide<T> factor =
        counted == 0 ? 0 : static_cast<Wide<T>>(dloss) / static_cast<Wide<T>>(counted);
    std::vector<double> of_rows(static_cast<std::size_t>(rows));  // not yet rounded
    parallel_ranges(rows, row_grain(width), [&](std::int64_t begin, std::int64_t end, std::byte*) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* row = x + r * width;
        if (target[r] == kIgnoredTarget) {
          if (dx != nullptr) std::fill_n(dx + r * width, width, static_cast<T>(0.0F));
          continue;
        }
        const Wide<T> log_sum = log_sum_exp(row, width);
        of_rows[static_cast<std::size_t>(r)] =
            static_cast<double>(log_sum) -
            static_cast<double>(static_cast<Wide<T>>(row[target[r]]));
        if (dx != nullptr) gradient_of_row(dx + r * width, row, target[r], log_sum, factor, width);
      }
    });
    double total = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      const double of_row = of_rows[static_cast<std::size_t>(r)];
      losses.data<Wide<T>>()[r] = static_cast<Wide<T>>(of_row);
      total += of_row;
    }
    *loss.data<Wide<T>>() =
        static_cast<Wide<T>>(counted == 0 ? 0 : total / static_cast<double>(counted));
  });
}

}  // namespace fsdp::ops
