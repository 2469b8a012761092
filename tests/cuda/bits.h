/// @file
/// The comparison of kernels with the CPU's whose bits must be equal.
#pragma once

#include "base/philox.h"
#include "cuda/kernels.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace cuda_test {

/// A value of either sign between 2^-8 and 2^4 that fits no format, or a zero, or a small number
/// that loses bits in every format. A function of `i` and `salt` alone.
inline double rough_value(std::int64_t i, std::int64_t salt) {
  const auto index = static_cast<std::uint64_t>(i);
  const auto seed = static_cast<std::uint64_t>(salt);
  const std::uint32_t word = fsdp::random_word(seed, 2 * index);
  const std::uint32_t kind = fsdp::random_word(seed, 2 * index + 1);
  const double mantissa = (static_cast<double>(word) + 1) * (kind % 2 == 0 ? 0x1p-32 : -0x1p-32);
  if (kind % 37 == 0) return std::copysign(0.0, mantissa);
  if (kind % 41 == 0) return mantissa * 0x1p-22;
  return std::ldexp(mantissa, static_cast<int>(kind / 64 % 12) - 7);
}

template <class T>
std::vector<T> rough(std::int64_t n, std::int64_t salt) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < n; ++i) {
    result.push_back(T(static_cast<fsdp::Wide<T>>(rough_value(i, salt))));
  }
  return result;
}

/// Lengths for operations that work element by element.
inline constexpr std::int64_t kFewSizes[] = {0, 3, 1030};

/// The operands of an operation, on the CPU and on the device.
using Tensors = std::vector<fsdp::Tensor>;
template <class T>
using Pointers = std::vector<T*>;

template <class T>
struct Operand {
  std::vector<T> values;
  fsdp::Shape shape;
};
template <class T>
Operand<T> rough_operand(const fsdp::Shape& shape, std::int64_t salt) {
  return {rough<T>(fsdp::numel_of(shape), salt), shape};
}

/// Runs `program` in one of some_plans(), which each round takes in turn: the outputs are compared
/// with the CPU's, so the plans need not be compared with each other.
inline Outputs run_in_turn(std::size_t round, const std::function<Outputs(cudaStream_t)>& program) {
  const std::vector<Plan> plans = some_plans();
  const Plan& plan = plans[round % plans.size()];
  INFO(text_of(plan));
  Session session(plan);
  const cudaStream_t stream = new_stream();
  const Outputs outputs = program(stream);
  check(cudaStreamDestroy(stream));
  CHECK_NOTHROW(session.finish());
  return outputs;
}

/// `on_cpu` and `on_device` compute the same from the same operands, in place or not. Afterwards
/// all operands must have the same bits. The addresses are aligned in one round. In each further
/// round one of them begins an element later (of many operands: the first, the middle, the last),
/// and in the last all of them do.
template <class T>
void check_same_bits(
    const std::vector<Operand<T>>& operands,
    const std::function<void(const Tensors&)>& compute_on_cpu,
    const std::function<void(cudaStream_t, const Pointers<T>&)>& compute_on_device) {
  Tensors expected;
  std::size_t longest = 0;
  for (const Operand<T>& operand : operands) {
    expected.push_back(on_cpu(operand.values, operand.shape));
    longest = std::max(longest, operand.values.size());
  }
  compute_on_cpu(expected);
  const std::size_t count = operands.size();
  const std::size_t none = count, all = count + 1;
  std::vector<std::size_t> skews = {none};
  for (std::size_t k = 0; k < count && longest >= 8; ++k) {
    if (count <= 4 || k == 0 || k == count / 2 || k + 1 == count) skews.push_back(k);
  }
  if (skews.size() > 2) skews.push_back(all);
  const Outputs outputs = run_in_turn(longest + count, [&](cudaStream_t stream) {
    Outputs taken;
    for (const std::size_t skew : skews) {
      std::vector<DeviceValues<T>> on_device;
      Pointers<T> pointers;
      for (std::size_t k = 0; k < count; ++k) {
        const bool is_skewed = skew == k || skew == all;
        on_device.emplace_back(stream, operands[k].values, is_skewed ? 1 : 0);
        pointers.push_back(on_device.back().data());
      }
      compute_on_device(stream, pointers);
      for (std::size_t k = 0; k < count; ++k) {
        taken.push_back(on_device[k].take(operands[k].shape));
      }
    }
    return taken;
  });
  REQUIRE(outputs.size() == count * skews.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t k = i % count;
    INFO("operand " << k << " of " << fsdp::to_string(operands[k].shape) << ", round "
                    << i / count);
    CHECK(fsdp::ops::equal_bits(outputs[i], expected[k]));
  }
}

}  // namespace cuda_test
