#include "tensor/column_sums.h"
#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

namespace fsdp::ops {

void sum_rows(const Tensor& out, const Tensor& in, Write write) {
  Operands args("sum_rows");
  args.expect_dims("in", in, 2);
  const std::int64_t rows = in.size(0), width = in.size(1);
  args.expect("in", in, {rows, width}).expect("out", out, {width});
  if (is_accelerated(args.device())) return accelerated<sum_rows>(out, in, write);
  args.compute_each(1, 1, in.numel(), [&]<class T>(T) {
    const T* x = in.data<T>();
    sum_columns(out.data<T>(), rows, width, write, [=](std::int64_t r, std::int64_t j, auto count) {
      return simd::load_n<T>(x + r * width + j, count);
    });
  });
}

void sum(const Tensor& out, const Tensor& in) {
  Operands args("sum");
  args.expect_like("in", in, in.shape()).expect_wide("out", out, {1});
  if (is_accelerated(args.device())) return accelerated<sum>(out, in);
  args.compute_each(1, 1, in.numel(), [&]<class T>(T) {
    constexpr std::int64_t kChunk = 4096;
    const T* x = in.data<T>();
    double total = 0;  // over chunks; within a chunk, one sum per lane
    for (std::int64_t begin = 0; begin < in.numel(); begin += kChunk) {
      simd::Vec<T> partial = {};
      simd::for_lanes<T>(std::min(kChunk, in.numel() - begin), [&](std::int64_t i, auto count) {
        partial += simd::load_n<T>(x + begin + i, count);
      });
      total += static_cast<double>(simd::sum<T>(partial));
    }
    *out.data<Wide<T>>() = static_cast<Wide<T>>(total);
  });
}

}  // namespace fsdp::ops
