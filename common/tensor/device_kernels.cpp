#include "tensor/device_kernels.h"

#include "base/check.h"

namespace fsdp {
namespace {

[[noreturn]] void fail_missing(const char* operation) {
  fail("{} has no kernel for CUDA: copy its operands to the cpu, and the result back", operation);
}

}  // namespace

std::int64_t DeviceKernels::scratch_nbytes() { fail_missing("scratch_nbytes"); }
void DeviceKernels::fill(const Tensor&, double) { fail_missing("fill"); }
void DeviceKernels::fill_with(const Tensor&, const Tensor&) { fail_missing("fill_with"); }
void DeviceKernels::copy(const Tensor&, const Tensor&) { fail_missing("copy"); }
bool DeviceKernels::equal_bits(const Tensor&, const Tensor&) { fail_missing("equal_bits"); }
bool DeviceKernels::all_finite(const Tensor&) { fail_missing("all_finite"); }
void DeviceKernels::add(const Tensor&, const Tensor&, const Tensor&) { fail_missing("add"); }
void DeviceKernels::multiply(const Tensor&, const Tensor&, const Tensor&, Write) {
  fail_missing("multiply");
}
void DeviceKernels::write(const Tensor&, const Tensor&, Write) { fail_missing("write"); }
void DeviceKernels::scale(const Tensor&, double) { fail_missing("scale"); }
void DeviceKernels::scale_by(const Tensor&, const Tensor&, double, double) {
  fail_missing("scale_by");
}
void DeviceKernels::add_row(const Tensor&, const Tensor&) { fail_missing("add_row"); }
void DeviceKernels::sum_rows(const Tensor&, const Tensor&, Write) { fail_missing("sum_rows"); }
void DeviceKernels::sum(const Tensor&, const Tensor&) { fail_missing("sum"); }
void DeviceKernels::relu(const Tensor&, const Tensor&) { fail_missing("relu"); }
void DeviceKernels::relu_backward(const Tensor&, const Tensor&, const Tensor&, Write) {
  fail_missing("relu_backward");
}
void DeviceKernels::tanh(const Tensor&, const Tensor&) { fail_missing("tanh"); }
void DeviceKernels::tanh_backward(const Tensor&, const Tensor&, const Tensor&, Write) {
  fail_missing("tanh_backward");
}
void DeviceKernels::matmul(const Tensor&, const Tensor&, Transpose, const Tensor&, Transpose,
                           Write) {
  fail_missing("matmul");
}
void DeviceKernels::embedding(const Tensor&, const Tensor&, const Tensor&) {
  fail_missing("embedding");
}
void DeviceKernels::embedding_backward(const Tensor&, const Tensor&, const Tensor&, Write) {
  fail_missing("embedding_backward");
}
void DeviceKernels::rms_norm(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double) {
  fail_missing("rms_norm");
}
void DeviceKernels::rms_norm_backward(const Tensor&, Write, const Tensor&, Write, const Tensor&,
                                      const Tensor&, const Tensor&, const Tensor&) {
  fail_missing("rms_norm_backward");
}
void DeviceKernels::rope(const Tensor&, const Tensor&, const Tensor&, bool) {
  fail_missing("rope");
}
void DeviceKernels::attention(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                              const Tensor&) {
  fail_missing("attention");
}
void DeviceKernels::attention_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                       const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                       const Tensor&) {
  fail_missing("attention_backward");
}
void DeviceKernels::swiglu(const Tensor&, const Tensor&, const Tensor&) { fail_missing("swiglu"); }
void DeviceKernels::swiglu_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                    const Tensor&) {
  fail_missing("swiglu_backward");
}
void DeviceKernels::cross_entropy(const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  fail_missing("cross_entropy");
}
void DeviceKernels::cross_entropy_backward(const Tensor&, const Tensor&, const Tensor&,
                                           const Tensor&, const Tensor&) {
  fail_missing("cross_entropy_backward");
}
void DeviceKernels::adamw(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const ops::AdamWStep&) {
  fail_missing("adamw");
}
void DeviceKernels::sgd(const Tensor&, const Tensor&, const Tensor&, const ops::SgdStep&) {
  fail_missing("sgd");
}
void DeviceKernels::adamax(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                           const ops::AdamaxStep&) {
  fail_missing("adamax");
}
void DeviceKernels::adagrad(const Tensor&, const Tensor&, const Tensor&, const ops::AdagradStep&) {
  fail_missing("adagrad");
}
void DeviceKernels::adadelta(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                             const ops::AdadeltaStep&) {
  fail_missing("adadelta");
}
void DeviceKernels::draw(const Tensor&, const InitSpec&, std::uint64_t, std::uint64_t) {
  fail_missing("draw");
}
void DeviceKernels::add_squares(const Tensor&, const Tensor&) { fail_missing("add_squares"); }

}  // namespace fsdp
