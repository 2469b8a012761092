#include "tensor/product.h"

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

}  // namespace fsdp::ops
