// The kernels of tensor/cuda/optimizer.cu have the CPU's bits.
#include "tensor/cuda/optimizer.h"

#include "cuda/bits.h"

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::Float16;
using fsdp::Tensor;
namespace cuda = fsdp::cuda;
namespace ops = fsdp::ops;

namespace {

/// param, grad, and two states; the second and, if asked for, the first hold no negative values.
template <class T>
std::vector<Operand<T>> optimizer_operands(std::int64_t n, bool both_positive) {
  std::vector<Operand<T>> result;
  for (std::int64_t k = 1; k <= 4; ++k) {
    result.push_back(rough_operand<T>({n}, k));
    if (k < 3 || (k == 3 && !both_positive)) continue;
    for (T& value : result.back().values) value = T(std::abs(static_cast<float>(value)));
  }
  return result;
}

/// Steps 1, 2 and 8 of an optimizer, of which update has the options.
template <class T>
void check_steps(ops::Update update) {
  const ops::OptimizerRow& row = ops::optimizer_of(update.rule);
  const bool both_positive =
      update.rule == ops::Rule::adagrad || update.rule == ops::Rule::adadelta;
  for (const std::int64_t n : kFewSizes) {
    INFO(row.name << ", n = " << n);
    check_same_bits<T>(
        optimizer_operands<T>(n, both_positive),
        [&](const Tensors& t) {
          for (const std::int64_t step : {1, 2, 8}) {
            update.step = step;
            ops::update(t[0], t[1], t[2], t[3], update);
          }
        },
        [&](cudaStream_t s, const Pointers<T>& p) {
          for (const std::int64_t step : {1, 2, 8}) {
            update.step = step;
            cuda::update(row.name, s, p[0], p[1], p[2], p[3], n, update);
          }
        });
  }
}

}  // namespace

TEMPLATE_TEST_CASE("every optimizer on CUDA memory has the CPU's bits", "[kernels]", float,
                   BFloat16, Float16) {
  for (const ops::OptimizerRow& row : ops::optimizers()) {
    for (const double weight_decay : {0.0, 0.1}) {
      for (const double momentum : {0.0, 0.9}) {
        if (momentum > 0 && !row.looks_at("momentum")) continue;
        check_steps<TestType>({row.rule,
                               3e-2,
                               1,
                               {.beta2 = 0.75,
                                .eps = 1e-4,
                                .weight_decay = weight_decay,
                                .momentum = momentum,
                                .lr_decay = 0.3},
                               weight_decay == 0 ? 1.0 : 1.0 / 3});
      }
    }
  }
}
