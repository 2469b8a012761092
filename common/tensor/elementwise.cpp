#include "base/fixed_math.h"
#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

namespace fsdp::ops {
namespace {

/// out[i] = value(i, count) for all i, in vectors, on all threads.
template <class T, class Value>
void map(T* out, std::int64_t n, Value value) {
  parallel_ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end, std::byte*) {
    simd::for_lanes<T>(end - begin, [&](std::int64_t i, auto count) {
      simd::store_n<T>(out + begin + i, value(begin + i, count), count);
    });
  });
}

/// Like map(), but adds to what is there if asked to.
template <class T, class Value>
void map(T* out, std::int64_t n, Write mode, Value value) {
  if (mode == Write::set) {
    map(out, n, value);
  } else {
    map(out, n, [&](std::int64_t i, auto count) {
      return simd::load_n<T>(out + i, count) + value(i, count);
    });
  }
}

}  // namespace

void add(const Tensor& out, const Tensor& a, const Tensor& b) {
  Operands args("add");
  args.expect_like("out", out, out.shape());
  args.expect_like("a", a, out.shape()).expect_like("b", b, out.shape());
  if (is_accelerated(args.device())) return accelerated<add>(out, a, b);
  args.compute(costs::add(out.numel(), args.size()), [&]<class T>(T) {
    const T* x = a.data<T>();
    const T* y = b.data<T>();
    map(out.data<T>(), out.numel(), [=](std::int64_t i, auto count) {
      return simd::load_n<T>(x + i, count) + simd::load_n<T>(y + i, count);
    });
  });
}

void multiply(const Tensor& out, const Tensor& a, const Tensor& b, Write write) {
  Operands args("multiply");
  args.expect_like("out", out, out.shape());
  args.expect_like("a", a, out.shape()).expect_like("b", b, out.shape());
  if (is_accelerated(args.device())) return accelerated<multiply>(out, a, b, write);
  args.compute_each(1, 3, out.numel(), [&]<class T>(T) {
    const T* x = a.data<T>();
    const T* y = b.data<T>();
    map(out.data<T>(), out.numel(), write, [=](std::int64_t i, auto count) {
      return simd::load_n<T>(x + i, count) * simd::load_n<T>(y + i, count);
    });
  });
}

void write(const Tensor& out, const Tensor& in, Write write) {
  Operands args("write");
  args.expect_like("out", out, out.shape()).expect_like("in", in, out.shape());
  if (is_accelerated(args.device())) return accelerated<ops::write>(out, in, write);
  args.compute_each(1, 3, out.numel(), [&]<class T>(T) {
    const T* x = in.data<T>();
    map(out.data<T>(), out.numel(), write,
        [=](std::int64_t i, auto count) { return simd::load_n<T>(x + i, count); });
  });
}

void scale(const Tensor& out, double factor) {
  Operands args("scale");
  args.expect_like("out", out, out.shape());
  const bool is_double = out.dtype() == DType::float64;
  if ((is_double ? factor : static_cast<double>(static_cast<float>(factor))) == 1) return;
  if (is_accelerated(args.device())) return accelerated<scale>(out, factor);
  args.compute(costs::scale(out.numel(), args.size()), [&]<class T>(T) {
    T* x = out.data<T>();
    const simd::Vec<T> by = simd::splat<T>(static_cast<Wide<T>>(factor));
    map(x, out.numel(),
        [=](std::int64_t i, auto count) { return simd::load_n<T>(x + i, count) * by; });
  });
}

void scale_by(const Tensor& out, const Tensor& factor, double times, double over) {
  Operands args("scale_by");
  args.expect_like("out", out, out.shape()).expect_wide("factor", factor, {1});
  if (is_accelerated(args.device())) return accelerated<scale_by>(out, factor, times, over);
  scale(out, args.device().has_data() ? factor.item() * times / over : 0);
}

void add_row(const Tensor& out, const Tensor& row) {
  Operands args("add_row");
  args.expect_dims("out", out, 2);
  const std::int64_t rows = out.size(0), width = out.size(1);
  args.expect("out", out, {rows, width}).expect("row", row, {width});
  if (is_accelerated(args.device())) return accelerated<add_row>(out, row);
  args.compute_each(1, 2, out.numel(), [&]<class T>(T) {
    T* x = out.data<T>();
    const T* y = row.data<T>();
    parallel_ranges(rows, row_grain(width), [&](std::int64_t begin, std::int64_t end, std::byte*) {
      for (std::int64_t r = begin; r < end; ++r) {
        T* to = x + r * width;
        simd::for_lanes<T>(width, [=](std::int64_t j, auto count) {
          const auto sum = simd::load_n<T>(to + j, count) + simd::load_n<T>(y + j, count);
          simd::store_n<T>(to + j, sum, count);
        });
      }
    });
  });
}

void relu(const Tensor& out, const Tensor& in) {
  Operands args("relu");
  args.expect_like("out", out, out.shape()).expect_like("in", in, out.shape());
  if (is_accelerated(args.device())) return accelerated<relu>(out, in);
  args.compute_each(1, 2, out.numel(), [&]<class T>(T) {
    const T* x = in.data<T>();
    map(out.data<T>(), out.numel(), [=](std::int64_t i, auto count) {
      const simd::Vec<T> v = simd::load_n<T>(x + i, count);
      return v <= simd::Vec<T>{} ? simd::Vec<T>{} : v;  // a NaN stays
    });
  });
}

void relu_backward(const Tensor& din, const Tensor& dout, const Tensor& in, Write write) {
  Operands args("relu_backward");
  args.expect_like("din", din, din.shape());
  args.expect_like("dout", dout, din.shape()).expect_like("in", in, din.shape());
  if (is_accelerated(args.device())) return accelerated<relu_backward>(din, dout, in, write);
  args.compute_each(1, 3, din.numel(), [&]<class T>(T) {
    const T* x = in.data<T>();
    const T* dy = dout.data<T>();
    map(din.data<T>(), din.numel(), write, [=](std::int64_t i, auto count) {
      const simd::Vec<T> v = simd::load_n<T>(x + i, count);
      return v > simd::Vec<T>{} ? simd::load_n<T>(dy + i, count) : simd::Vec<T>{};
    });
  });
}

void tanh(const Tensor& out, const Tensor& in) {
  Operands args("tanh");
  args.expect_like("out", out, out.shape()).expect_like("in", in, out.shape());
  if (is_accelerated(args.device())) return accelerated<tanh>(out, in);
  args.compute_each(10, 2, out.numel(), [&]<class T>(T) {
    const T* x = in.data<T>();
    T* y = out.data<T>();
    parallel_ranges(out.numel(), kGrain, [=](std::int64_t begin, std::int64_t end, std::byte*) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double wide = fixed::tanh(static_cast<double>(static_cast<Wide<T>>(x[i])));
        y[i] = static_cast<T>(static_cast<Wide<T>>(wide));
      }
    });
  });
}

void tanh_backward(const Tensor& din, const Tensor& dout, const Tensor& out, Write write) {
  Operands args("tanh_backward");
  args.expect_like("din", din, din.shape());
  args.expect_like("dout", dout, din.shape()).expect_like("out", out, din.shape());
  if (is_accelerated(args.device())) return accelerated<tanh_backward>(din, dout, out, write);
  args.compute_each(3, 3, din.numel(), [&]<class T>(T) {
    const T* y = out.data<T>();
    const T* dy = dout.data<T>();
    map(din.data<T>(), din.numel(), write, [=](std::int64_t i, auto count) {
      const simd::Vec<T> v = simd::load_n<T>(y + i, count);
      return simd::load_n<T>(dy + i, count) * (simd::splat<T>(1) - v * v);
    });
  });
}

}  // namespace fsdp::ops
