// The kernels of tensor/cuda/optimizer.cu and optimizer_adaptive.cu have the CPU's bits.
#include "tensor/cuda/optimizer.h"

#include "cuda/bits.h"
#include "tensor/cuda/optimizer_adaptive.h"

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

/// Steps 1, 2 and 8: `on_cpu(t, step)` and `on_device(stream, p, n, step)` do one of them.
template <class T, class OnCpu, class OnDevice>
void check_steps(OnCpu on_cpu, OnDevice on_device, bool both_positive = false) {
  for (const std::int64_t n : kFewSizes) {
    INFO("n = " << n);
    check_same_bits<T>(
        optimizer_operands<T>(n, both_positive),
        [&](const Tensors& t) {
          for (const std::int64_t step : {1, 2, 8}) on_cpu(t, step);
        },
        [&](cudaStream_t s, const Pointers<T>& p) {
          for (const std::int64_t step : {1, 2, 8}) on_device(s, p, n, step);
        });
  }
}

}  // namespace

TEMPLATE_TEST_CASE("AdamW and Adam on CUDA memory have the CPU's bits", "[kernels]", float,
                   BFloat16, Float16) {
  using T = TestType;
  for (const bool by_rate : {true, false}) {
    const auto hyper = [=](std::int64_t step) {
      return ops::AdamWStep{3e-2, 0.9, 0.95, 1e-8, 0.1, step, by_rate};
    };
    check_steps<T>(
        [=](const auto& t, std::int64_t step) { ops::adamw(t[0], t[1], t[2], t[3], hyper(step)); },
        [=](cudaStream_t s, const auto& p, std::int64_t n, std::int64_t step) {
          cuda::adamw(s, p[0], p[1], p[2], p[3], n, hyper(step));
        });
  }
}

TEMPLATE_TEST_CASE("SGD on CUDA memory has the CPU's bits", "[kernels]", float, BFloat16, Float16) {
  using T = TestType;
  for (const double momentum : {0.0, 0.9}) {
    for (const double weight_decay : {0.0, 0.1}) {
      const auto hyper = [=](std::int64_t step) {
        return ops::SgdStep{3e-2, momentum, weight_decay, step == 1};
      };
      check_steps<T>(
          [=](const auto& t, std::int64_t step) {
            ops::sgd(t[0], t[1], momentum == 0 ? Tensor() : t[2], hyper(step));
          },
          [=](cudaStream_t s, const auto& p, std::int64_t n, std::int64_t step) {
            cuda::sgd(s, p[0], p[1], momentum == 0 ? nullptr : p[2], n, hyper(step));
          });
    }
  }
}

TEMPLATE_TEST_CASE("Adamax on CUDA memory has the CPU's bits", "[kernels]", float, BFloat16,
                   Float16) {
  using T = TestType;
  const auto hyper = [](std::int64_t step) {
    return ops::AdamaxStep{3e-2, 0.9, 0.75, 1e-4, 0.1, step};
  };
  check_steps<T>(
      [=](const auto& t, std::int64_t step) { ops::adamax(t[0], t[1], t[2], t[3], hyper(step)); },
      [=](cudaStream_t s, const auto& p, std::int64_t n, std::int64_t step) {
        cuda::adamax(s, p[0], p[1], p[2], p[3], n, hyper(step));
      });
}

TEMPLATE_TEST_CASE("Adagrad on CUDA memory has the CPU's bits", "[kernels]", float, BFloat16,
                   Float16) {
  using T = TestType;
  const auto hyper = [](std::int64_t step) { return ops::AdagradStep{3e-2, 0.3, 1e-4, 0.1, step}; };
  check_steps<T>(
      [=](const auto& t, std::int64_t step) { ops::adagrad(t[0], t[1], t[3], hyper(step)); },
      [=](cudaStream_t s, const auto& p, std::int64_t n, std::int64_t step) {
        cuda::adagrad(s, p[0], p[1], p[3], n, hyper(step));
      });
}

TEMPLATE_TEST_CASE("Adadelta on CUDA memory has the CPU's bits", "[kernels]", float, BFloat16,
                   Float16) {
  using T = TestType;
  const ops::AdadeltaStep hyper{0.7, 0.9, 1e-4, 0.1};
  check_steps<T>([=](const auto& t, std::int64_t) { ops::adadelta(t[0], t[1], t[2], t[3], hyper); },
                 [=](cudaStream_t s, const auto& p, std::int64_t n, std::int64_t) {
                   cuda::adadelta(s, p[0], p[1], p[2], p[3], n, hyper);
                 },
                 true);
}
