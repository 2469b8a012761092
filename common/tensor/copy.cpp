// Filling, copying and comparing: the operations that know every dtype.
#include "tensor/cast.h"
#include "tensor/host_copy.h"
#include "tensor/operands.h"
#include "tensor/ops.h"
#include "tensor/simd.h"

#include <atomic>
#include <cstring>
#include <type_traits>

namespace fsdp::ops {
namespace {

void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  FSDP_CHECK(a.is_defined() && b.is_defined(), "{}: undefined tensor", op);
  FSDP_CHECK(a.shape() == b.shape(), "{}: shapes {} and {} differ", op, to_string(a.shape()),
             to_string(b.shape()));
  FSDP_CHECK(a.device() == b.device(), "{}: one tensor is on {}, the other on {}", op,
             to_string(a.device()), to_string(b.device()));
  if (a.device().type != DeviceType::meta) {
    a.raw();
    b.raw();
  }
}

/// Walks all but the last dimension of two strided tensors of one shape.
template <class Body>
void for_each_row(const Tensor& a, const Tensor& b, Body&& body) {
  const std::size_t outer = a.shape().size() - 1;
  std::vector<std::int64_t> index(outer, 0);
  const std::int64_t width = a.shape().back();
  const std::int64_t rows = width == 0 ? 0 : a.numel() / width;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t at_a = 0, at_b = 0;
    for (std::size_t d = 0; d < outer; ++d) {
      at_a += index[d] * a.strides()[d];
      at_b += index[d] * b.strides()[d];
    }
    body(at_a, at_b);
    for (std::size_t d = outer; d-- > 0;) {
      if (++index[d] < a.shape()[d]) break;
      index[d] = 0;
    }
  }
}

/// The same value as To, rounded once.
template <class To, class From>
To converted(From value) {
  if constexpr (kIsHalf<From>)
    return converted<To>(static_cast<float>(value));
  else if constexpr (kIsHalf<To> && std::is_integral_v<From>)
    return To(static_cast<double>(value));
  else
    return static_cast<To>(value);
}

/// Between float32 and 16-bit floats, where nothing is strided: what mixed precision does to every
/// parameter and gradient.
template <class To, class From>
void copy_vectors(const Tensor& out, const Tensor& in) {
  To* to = out.data<To>();
  const From* from = in.data<From>();
  parallel_ranges(out.numel(), kGrain, [=](std::int64_t begin, std::int64_t end, std::byte*) {
    simd::for_lanes<To>(end - begin, [=](std::int64_t i, auto count) {
      simd::store_n<To>(to + begin + i, simd::load_n<From>(from + begin + i, count), count);
    });
  });
}

template <class To, class From>
void copy_strided(const Tensor& out, const Tensor& in) {
  To* to = out.data<To>();
  const From* from = in.data<From>();
  if (out.shape().empty()) {
    *to = converted<To>(*from);
    return;
  }
  const std::int64_t width = out.shape().back();
  const std::int64_t step_to = out.strides().back(), step_from = in.strides().back();
  for_each_row(out, in, [&](std::int64_t at_to, std::int64_t at_from) {
    To* row_to = to + at_to;
    const From* row_from = from + at_from;
    for (std::int64_t i = 0; i < width; ++i) {
      row_to[i * step_to] = converted<To>(row_from[i * step_from]);
    }
  });
}

}  // namespace

void fill(const Tensor& out, double value) {
  FSDP_CHECK(out.is_defined(), "fill: undefined tensor");
  FSDP_CHECK(out.is_contiguous(), "fill: the tensor must be contiguous");
  if (out.device().type != DeviceType::meta) out.raw();
  if (is_accelerated(out.device())) return accelerated<fill>(out, value);
  dispatch(out.device(), costs::fill(out.numel(), size_of(out.dtype())), [&] {
    dispatch_any(out.dtype(), [&]<class T>(T) {
      T* to = out.data<T>();
      const T what = static_cast<T>(value);
      parallel_ranges(out.numel(), 4 * kGrain,
                      [=](std::int64_t begin, std::int64_t end, std::byte*) {
                        std::fill(to + begin, to + end, what);
                      });
    });
  });
}

void fill_with(const Tensor& out, const Tensor& value) {
  Operands args("fill_with");
  args.expect_like("out", out, out.shape()).expect_wide("value", value, {1});
  if (is_accelerated(args.device())) return accelerated<fill_with>(out, value);
  fill(out, args.device().has_data() ? value.item() : 0);
}

void copy_elements(const Tensor& out, const Tensor& in) {
  if (out.numel() == 0) return;
  if (out.dtype() == in.dtype() && out.is_contiguous() && in.is_contiguous()) {
    std::byte* to = out.raw();
    const std::byte* from = in.raw();
    parallel_ranges(static_cast<std::int64_t>(out.nbytes()), 16 * kGrain,
                    [=](std::int64_t begin, std::int64_t end, std::byte*) {
                      std::memmove(to + begin, from + begin, static_cast<std::size_t>(end - begin));
                    });
    return;
  }
  dispatch_any(out.dtype(), [&]<class To>(To) {
    dispatch_any(in.dtype(), [&]<class From>(From) {
      if constexpr (std::is_same_v<Wide<To>, float> && std::is_same_v<Wide<From>, float>) {
        if (out.is_contiguous() && in.is_contiguous()) return copy_vectors<To, From>(out, in);
      }
      copy_strided<To, From>(out, in);
    });
  });
}

// Between two memories. A CUDA device copies from and to pinned memory alone: what comes from other
// memory of the host passes through it, and the host runs on.
void copy_between(const Tensor& out, const Tensor& in) {
  if (in.device() == kCpu && out.device().type == DeviceType::cuda) {
    const AllocationScope as_temp(MemoryKind::temp);
    const Tensor pinned = Tensor::empty(in.shape(), in.dtype(), kCpuHost);
    copy_elements(pinned, in);
    return start_host_copy(out, pinned, {}).wait();
  }
  if (out.device() == kCpu && in.device().type == DeviceType::cuda) {
    return copy(out, on_host(in));
  }
  start_host_copy(out, in, {}).wait();
}

void copy(const Tensor& out, const Tensor& in) {
  const bool is_between = out.is_defined() && in.is_defined() && out.device() != in.device();
  if (is_between) return copy_between(out, in);
  check_pair("copy", out, in);
  if (is_accelerated(out.device())) return accelerated<copy>(out, in);
  const Cost cost =
      costs::copy(static_cast<std::int64_t>(in.nbytes()), static_cast<std::int64_t>(out.nbytes()));
  dispatch(out.device(), cost, [&] { copy_elements(out, in); });
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  check_pair("equal_bits", a, b);
  FSDP_CHECK(a.dtype() == b.dtype(),
             "equal_bits: the tensors must have the same dtype, got {} and {}", name_of(a.dtype()),
             name_of(b.dtype()));
  FSDP_CHECK(a.is_contiguous() && b.is_contiguous(), "equal_bits: tensors must be contiguous");
  if (is_accelerated(a.device())) return accelerated<equal_bits>(a, b);
  bool equal = true;
  dispatch(a.device(), Cost{.nbytes = 2 * static_cast<double>(a.nbytes())},
           [&] { equal = a.nbytes() == 0 || std::memcmp(a.raw(), b.raw(), a.nbytes()) == 0; });
  return equal;
}

bool all_finite(const Tensor& a) {
  Operands args("all_finite");
  args.expect_like("a", a, a.shape());
  if (is_accelerated(args.device())) return accelerated<all_finite>(a);
  std::atomic<bool> finite{true};
  args.compute_each(0, 1, a.numel(), [&]<class T>(T) {
    const T* x = a.data<T>();
    parallel_ranges(a.numel(), 4 * kGrain, [&](std::int64_t begin, std::int64_t end, std::byte*) {
      bool here = true;
      for (std::int64_t i = begin; i < end; ++i) {
        const auto value = static_cast<Wide<T>>(x[i]);
        here &= (value - value == 0);  // NOLINT(misc-redundant-expression): inf - inf is NaN
      }
      if (!here) finite = false;
    });
  });
  return finite;
}

}  // namespace fsdp::ops
