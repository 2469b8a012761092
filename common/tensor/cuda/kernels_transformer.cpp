// Products, and the operations of a transformer.
#include "tensor/cuda/attention.h"
#include "tensor/cuda/cross_entropy.h"
#include "tensor/cuda/embedding.h"
#include "tensor/cuda/kernel_state.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/matmul.h"
#include "tensor/cuda/rms_norm.h"
#include "tensor/cuda/rope.h"
#include "tensor/cuda/swiglu.h"

namespace fsdp::cuda {
namespace {

template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.is_defined() ? tensor.data<T>() : nullptr;
}

AttentionExtents extents_of(const Tensor& q, const Tensor& k) {
  return {.batch = q.size(0),
          .length = k.size(1),
          .heads = q.size(2),
          .kv_heads = k.size(2),
          .width = q.size(3),
          .queries = q.size(1)};
}

void matmul(const Tensor& out, const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
            Write write) {
  const ProductShape shape{.rows = out.size(0),
                           .columns = out.size(1),
                           .depth = a.size(ta == Transpose::yes ? 0 : 1),
                           .a_transposed = ta == Transpose::yes,
                           .b_transposed = tb == Transpose::yes,
                           .add = write == Write::add};
  dispatch_floating("matmul", out.dtype(), [&]<class T>(T) {
    CudaKernelState& state = CudaKernelState::current();
    Products& products = state.products();
    products.matmul(compute(), out.data<T>(), a.data<T>(), b.data<T>(), shape,
                    state.workspace().data());
  });
}

void embedding(const Tensor& out, const Tensor& table, const Tensor& tokens) {
  const std::int64_t vocabulary = table.size(0);
  IndexError* const error = CudaKernelState::current().error_of("embedding", "token", vocabulary);
  dispatch_floating("embedding", out.dtype(), [&]<class T>(T) {
    cuda::embedding(compute(), out.data<T>(), table.data<T>(), tokens.data<std::int32_t>(),
                    tokens.numel(), table.size(1), vocabulary, error);
  });
}

void embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& tokens, Write write,
                        std::int64_t padding) {
  const std::int64_t vocabulary = dtable.size(0);
  IndexError* const error =
      CudaKernelState::current().error_of("embedding_backward", "token", vocabulary);
  dispatch_floating("embedding_backward", dout.dtype(), [&]<class T>(T) {
    cuda::embedding_backward(compute(), dtable.data<T>(), dout.data<T>(),
                             tokens.data<std::int32_t>(), tokens.numel(), dtable.size(1),
                             vocabulary, padding, write == Write::add, error);
  });
}

void rms_norm(const Tensor& out, const Tensor& rstd, const Tensor& x, const Tensor& weight,
              double eps) {
  dispatch_floating("rms_norm", x.dtype(), [&]<class T>(T) {
    cuda::rms_norm(compute(), out.data<T>(), rstd.data<float>(), x.data<T>(), weight.data<T>(),
                   x.size(0), x.size(1), eps);
  });
}

void add_rms_norm(const Tensor& out, const Tensor& rstd, const Tensor& sum, const Tensor& x,
                  const Tensor& y, const Tensor& weight, double eps) {
  dispatch_floating("add_rms_norm", x.dtype(), [&]<class T>(T) {
    cuda::add_rms_norm(compute(), out.data<T>(), rstd.data<float>(), sum.data<T>(), x.data<T>(),
                       y.data<T>(), weight.data<T>(), x.size(0), x.size(1), eps);
  });
}

void rms_norm_backward(const Tensor& dx, Write write_dx, const Tensor& dweight, Write write_dweight,
                       const Tensor& dout, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd) {
  dispatch_floating("rms_norm_backward", x.dtype(), [&]<class T>(T) {
    cuda::rms_norm_backward(compute(), data_or_null<T>(dx), write_dx == Write::add,
                            data_or_null<T>(dweight), write_dweight == Write::add, dout.data<T>(),
                            x.data<T>(), weight.data<T>(), rstd.data<float>(), x.size(0), x.size(1),
                            CudaKernelState::current().workspace());
  });
}

void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse) {
  dispatch_floating("rope", x.dtype(), [&]<class T>(T) {
    cuda::rope(compute(), x.data<T>(), cos.data<float>(), sin.data<float>(), inverse, x.size(0),
               x.size(1), x.size(2), x.size(3));
  });
}

void attention(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
               const Tensor& v) {
  dispatch_floating("attention", q.dtype(), [&]<class T>(T) {
    cuda::attention(compute(), out.data<T>(), lse.data<float>(), q.data<T>(), k.data<T>(),
                    v.data<T>(), extents_of(q, k));
  });
}

void attention_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout,
                        const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                        const Tensor& v) {
  dispatch_floating("attention_backward", q.dtype(), [&]<class T>(T) {
    cuda::attention_backward(compute(), dq.data<T>(), dk.data<T>(), dv.data<T>(), dout.data<T>(),
                             out.data<T>(), lse.data<float>(), q.data<T>(), k.data<T>(),
                             v.data<T>(), extents_of(q, k));
  });
}

void swiglu(const Tensor& out, const Tensor& gate, const Tensor& up) {
  dispatch_floating("swiglu", out.dtype(), [&]<class T>(T) {
    cuda::swiglu(compute(), out.data<T>(), gate.data<T>(), up.data<T>(), out.numel());
  });
}

void swiglu_backward(const Tensor& dgate, const Tensor& dup, const Tensor& dout, const Tensor& gate,
                     const Tensor& up) {
  dispatch_floating("swiglu_backward", dout.dtype(), [&]<class T>(T) {
    cuda::swiglu_backward(compute(), dgate.data<T>(), dup.data<T>(), dout.data<T>(), gate.data<T>(),
                          up.data<T>(), dout.numel());
  });
}

void cross_entropy(const Tensor& loss, const Tensor& losses, const Tensor& logits,
                   const Tensor& targets, const Tensor& dlogits, double dloss) {
  CudaKernelState& state = CudaKernelState::current();
  IndexError* const error = state.error_of("cross_entropy", "target", logits.size(1));
  dispatch_floating("cross_entropy", logits.dtype(), [&]<class T>(T) {
    T* const dx = dlogits.is_defined() ? dlogits.data<T>() : nullptr;
    cuda::cross_entropy(compute(), loss.data<float>(), losses.data<float>(), dx,
                        static_cast<float>(dloss), state.word<CountedRows>(), logits.data<T>(),
                        targets.data<std::int32_t>(), logits.size(0), logits.size(1), error);
  });
}

}  // namespace

void add_transformer_kernels() {
  kernel_of<ops::matmul> = matmul;
  kernel_of<ops::embedding> = embedding;
  kernel_of<ops::embedding_backward> = embedding_backward;
  kernel_of<ops::rms_norm> = rms_norm;
  kernel_of<ops::add_rms_norm> = add_rms_norm;
  kernel_of<ops::rms_norm_backward> = rms_norm_backward;
  kernel_of<ops::rope> = rope;
  kernel_of<ops::attention> = attention;
  kernel_of<ops::attention_backward> = attention_backward;
  kernel_of<ops::swiglu> = swiglu;
  kernel_of<ops::swiglu_backward> = swiglu_backward;
  kernel_of<ops::cross_entropy> = cross_entropy;
}

}  // namespace fsdp::cuda
