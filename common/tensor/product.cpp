#include "tensor/product.h"

#include "tensor/product_kernel.h"
#include "tensor/simd.h"

namespace fsdp::ops {

template <class T>
void product(ProductExtents extents, Matrix<T> a, Matrix<T> b, T* c, Write write,
             ThreadPool& pool) {
  using Widest = typename simd::VectorOf<T, simd::kRegisterBytes>::Values;
  product_with<Widest>(extents, a, b, c, write, pool);
}

template void product(ProductExtents, Matrix<float>, Matrix<float>, float*, Write, ThreadPool&);
template void product(ProductExtents, Matrix<double>, Matrix<double>, double*, Write, ThreadPool&);

}  // namespace fsdp::ops
