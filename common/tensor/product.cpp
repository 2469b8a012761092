#include "tensor/product.h"

#include "tensor/operands.h"
#include "tensor/product_kernel.h"
#include "tensor/product_widened.h"
#include "tensor/simd.h"

namespace fsdp::ops {

template <class T>
void product(ProductExtents extents, Matrix<T> a, Matrix<T> b, T* c, Write write,
             ThreadPool& pool) {
  using Widest = typename simd::VectorOf<Wide<T>, simd::kRegisterBytes>::Values;
  if constexpr (kIsHalf<T>) {
    widened_product_with<Widest>(extents, a, b, c, write, pool);
  } else {
    product_with<Widest>(extents, a, b, c, write, pool);
  }
}

template void product(ProductExtents, Matrix<float>, Matrix<float>, float*, Write, ThreadPool&);
template void product(ProductExtents, Matrix<double>, Matrix<double>, double*, Write, ThreadPool&);
template void product(ProductExtents, Matrix<BFloat16>, Matrix<BFloat16>, BFloat16*, Write,
                      ThreadPool&);
template void product(ProductExtents, Matrix<Float16>, Matrix<Float16>, Float16*, Write,
                      ThreadPool&);

namespace {

struct Extents {
  std::int64_t rows, columns;
};

Extents extents_of(const Tensor& t, Transpose transpose) {
  if (transpose == Transpose::yes) return {t.size(1), t.size(0)};
  return {t.size(0), t.size(1)};
}

}  // namespace

void matmul(const Tensor& out, const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
            Write write) {
  Operands args("matmul");
  args.expect_dims("out", out, 2).expect_dims("a", a, 2).expect_dims("b", b, 2);
  const Extents left_extents = extents_of(a, ta), right_extents = extents_of(b, tb);
  const std::int64_t m = left_extents.rows, n = right_extents.columns, k = left_extents.columns;
  FSDP_CHECK(k == right_extents.rows, "matmul: op(a) is ({}, {}) but op(b) is ({}, {})", m, k,
             right_extents.rows, n);
  args.expect("out", out, {m, n});
  args.expect("a", a, {a.size(0), a.size(1)}).expect("b", b, {b.size(0), b.size(1)});
  if (is_accelerated(args.device())) return accelerated<matmul>(out, a, ta, b, tb, write);
  args.compute(costs::matmul(m, n, k, args.size()), [&]<class T>(T) {
    if (m == 0 || n == 0) return;
    if (k == 0) {
      if (write == Write::set) fill(out, 0);
      return;
    }
    product<T>({m, n, k}, {a.data<T>(), a.size(1), ta == Transpose::yes},
               {b.data<T>(), b.size(1), tb == Transpose::yes}, out.data<T>(), write,
               Context::current().pool());
  });
}

}  // namespace fsdp::ops
