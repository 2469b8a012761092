// The kernels of tensor/cuda/cross_entropy.cu against the CPU's.
#include "tensor/cuda/cross_entropy.h"

#include "cuda/few_plans.h"
#include "cuda/indices.h"

using namespace cuda_test;
using fsdp::BFloat16;
using fsdp::DType;
using fsdp::Float16;
using fsdp::Tensor;
namespace ops = fsdp::ops;

namespace {

struct Logits {
  std::int64_t rows, width, skip;
};
const std::vector<Logits>& some_logits() {
  // The last ones of a warp and of a block are wider than what its threads load at once.
  static const std::vector<Logits> all = {{1, 1, 0},   {3, 31, 1},   {300, 5, 0},  {5, 132, 0},
                                          {2, 700, 0}, {2, 1029, 0}, {1, 4120, 0}, {1, 16500, 1}};
  return all;
}

/// Every third target does not count.
std::vector<std::int32_t> targets_of(const Logits& s) {
  auto targets = indices(s.rows, s.width, 2);
  for (std::size_t i = 1; i < targets.size(); i += 3) targets[i] = ops::kIgnoredTarget;
  return targets;
}

struct Expected {
  Tensor loss = Tensor::empty({1}, DType::float32), losses, dlogits;
};
constexpr float kDLoss = 0.75F;

/// Logits up to 16 apart.
template <class T>
std::vector<T> logits_of(const Logits& s) {
  auto result = values<T>(s.rows * s.width, 1);
  for (T& each : result) each = T(static_cast<float>(each) * 4);
  return result;
}

template <class T>
Expected on_the_cpu(const Logits& s, const std::vector<T>& logits,
                    const std::vector<std::int32_t>& targets) {
  Expected e;
  e.losses = Tensor::empty({s.rows}, DType::float32);
  e.dlogits = on_cpu(logits, {s.rows, s.width});
  ops::cross_entropy(e.loss, e.losses, e.dlogits, on_cpu(targets, {s.rows}), e.dlogits, kDLoss);
  return e;
}

enum class Gradient { none, apart, in_place };

/// loss, losses and dlogits, or the logits if there are none. `expect` looks at the error word.
template <class T>
Outputs on_the_device(const Logits& s, const std::vector<T>& logits,
                      const std::vector<std::int32_t>& targets, Gradient gradient,
                      const std::function<void(DeviceError&)>& expect) {
  return in_plans(std::is_same_v<T, float>, [&](cudaStream_t stream) {
    DeviceValues<T> x(stream, logits, s.skip), dx(stream, logits, 0);
    DeviceValues<std::int32_t> at(stream, targets, 0);
    DeviceValues<float> loss(stream, {NAN}, 0), counted(stream, {NAN, NAN}, 0),
        losses(stream, std::vector<float>(targets.size(), NAN), 0);
    DeviceError error(stream);
    DeviceValues<T>& result = gradient == Gradient::apart ? dx : x;
    fsdp::cuda::cross_entropy(stream, loss.data(), losses.data(),
                              gradient == Gradient::none ? nullptr : result.data(), kDLoss,
                              reinterpret_cast<fsdp::cuda::CountedRows*>(counted.data()), x.data(),
                              at.data(), s.rows, s.width, error.data());
    expect(error);
    at.drop();
    counted.drop();
    (gradient == Gradient::apart ? x : dx).drop();
    return Outputs{loss.take({1}), losses.take({s.rows}), result.take({s.rows, s.width})};
  });
}

void expect_none(DeviceError& error) { error.expect_none(); }

template <class T>
void check_loss(const Logits& s, Gradient gradient) {
  INFO(s.rows << " rows of " << s.width << ", skip " << s.skip << ", gradient "
              << static_cast<int>(gradient));
  const auto logits = logits_of<T>(s);
  const auto targets = targets_of(s);
  const Expected expected = on_the_cpu(s, logits, targets);
  const Outputs outputs = on_the_device(s, logits, targets, gradient, expect_none);
  CHECK(largest_error(outputs[0], expected.loss) <= 1e-6);
  CHECK(largest_error(outputs[1], expected.losses) <= 1e-6);
  if (gradient == Gradient::none) {
    CHECK(ops::equal_bits(outputs[2], on_cpu(logits, {s.rows, s.width})));
  } else {
    CHECK(largest_error(outputs[2], expected.dlogits) <=
          tolerance<T>() / static_cast<double>(s.rows));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("cross entropy on CUDA memory gives the CPU's loss and gradient", "[kernels]",
                   float, BFloat16, Float16) {
  for (const Logits& s : some_logits()) {
    for (const Gradient gradient : {Gradient::none, Gradient::apart, Gradient::in_place}) {
      check_loss<TestType>(s, gradient);
    }
  }
}

TEST_CASE("a loss without rows that count is zero, and so is its gradient", "[kernels]") {
  const Logits s{3, 5, 0};
  const auto logits = logits_of<float>(s);
  const std::vector<std::int32_t> targets(3, ops::kIgnoredTarget);
  const Outputs outputs = on_the_device(s, logits, targets, Gradient::apart, expect_none);
  CHECK(outputs[0].to_vector<float>() == std::vector<float>{0});
  CHECK(outputs[2].to_vector<float>() == std::vector<float>(15, 0.0F));
}

TEST_CASE("logits far apart, or infinite, leave the loss finite", "[kernels]") {
  const Logits s{1, 261, 0};
  std::vector<float> logits(261, -INFINITY);
  logits[3] = -9e4F;
  logits[260] = 9e4F;
  const std::vector<std::int32_t> targets = {260};
  const Outputs outputs = on_the_device(s, logits, targets, Gradient::in_place, expect_none);
  CHECK(outputs[0].to_vector<float>() == std::vector<float>{0});
  CHECK(outputs[1].to_vector<float>() == std::vector<float>{0});
}

TEST_CASE("logits far below zero have a finite loss", "[kernels]") {
  const Logits s{1, 6, 0};
  const std::vector<float> logits(6, -1000.0F);
  const Outputs outputs = on_the_device(s, logits, {2}, Gradient::none, expect_none);
  CHECK(largest_error(outputs[0], on_cpu(std::vector<float>{std::log(6.0F)}, {1})) <= 1e-4);
}

TEST_CASE("the first target outside the vocabulary is reported and does not count", "[kernels]") {
  const Logits s{300, 5, 0};
  const auto logits = logits_of<float>(s);
  auto targets = targets_of(s);
  targets[290] = 5;
  targets[18] = -7;
  const Outputs outputs = on_the_device(s, logits, targets, Gradient::apart,
                                        [](DeviceError& error) { error.expect(18, -7); });
  targets[290] = targets[18] = ops::kIgnoredTarget;
  const Expected expected = on_the_cpu(s, logits, targets);
  CHECK(largest_error(outputs[0], expected.loss) <= 1e-6);
  CHECK(largest_error(outputs[2], expected.dlogits) <= 1e-8);
}
