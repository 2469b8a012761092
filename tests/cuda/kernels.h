/// @file
/// What the tests of the library's kernels share: inputs, the ways to run, and the comparison with
/// the CPU.
#pragma once

#include "cuda_stand_in/plans.h"
#include "tensor/ops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace cuda_test {

/// One plan of each mode, two of them with shuffled threads, or the one that CUDA_ON_HOST names.
/// The stand-in's own tests try them all.
inline std::vector<Plan> some_plans() {
  return requested_or({{Mode::lazy, 0}, {Mode::eager, 17}, {Mode::random, 3}});
}

/// What a program computed on the device, as tensors of the CPU.
using Outputs = std::vector<fsdp::Tensor>;

/// Runs `program` under some_plans(), each of which must end well with the same bits.
inline Outputs same_in_some_plans(const std::function<Outputs(cudaStream_t)>& program) {
  Outputs first;
  for (const Plan& plan : some_plans()) {
    INFO(text_of(plan));
    Session session(plan);
    const cudaStream_t stream = new_stream();
    const Outputs outputs = program(stream);
    check(cudaStreamDestroy(stream));
    CHECK_NOTHROW(session.finish());
    if (first.empty()) first = outputs;
    REQUIRE(outputs.size() == first.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      CHECK(fsdp::ops::equal_bits(outputs[i], first[i]));
    }
  }
  return first;
}

/// Values between -2 and 2, a function of i and `salt` alone; exact in every format.
inline float value_at(std::int64_t i, std::int64_t salt) {
  return static_cast<float>((i * 37 + salt * 101) % 65 - 32) / 16;
}

template <class T>
std::vector<T> values(std::int64_t n, std::int64_t salt) {
  std::vector<T> result(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) result[static_cast<std::size_t>(i)] = T(value_at(i, salt));
  return result;
}

template <class T>
fsdp::Tensor on_cpu(const std::vector<T>& values, const fsdp::Shape& shape) {
  return fsdp::Tensor::from(values, shape);
}

/// Values in the device's memory, `skip` elements behind an aligned address.
template <class T>
class DeviceValues {
 public:
  DeviceValues(cudaStream_t stream, const std::vector<T>& values, std::int64_t skip)
      : whole_(stream, padded(values, skip)), skip_(skip) {}
  T* data() { return whole_.data + skip_; }
  /// Frees the bytes and returns what they held. What lies before the values must be unchanged.
  fsdp::Tensor take(const fsdp::Shape& shape) {
    std::vector<T> all = whole_.read_back();
    whole_.free();
    const T before(0.0F);
    for (std::int64_t i = 0; i < skip_; ++i) {
      CHECK(std::memcmp(&all[static_cast<std::size_t>(i)], &before, sizeof before) == 0);
    }
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(skip_));
    if (fsdp::numel_of(shape) == 0) all.clear();
    return on_cpu(all, shape);
  }
  void drop() { whole_.free(); }

 private:
  static std::vector<T> padded(const std::vector<T>& values, std::int64_t skip) {
    std::vector<T> all(static_cast<std::size_t>(skip), T(0.0F));
    all.insert(all.end(), values.begin(), values.end());
    if (all.empty()) all.push_back(T(0.0F));
    return all;
  }
  OnDevice<T> whole_;
  std::int64_t skip_;
};

/// The largest |a - b| / max(1, |b|) of two floating tensors; infinity if a value is not a number.
inline double largest_error(const fsdp::Tensor& a, const fsdp::Tensor& b) {
  const fsdp::Tensor x = fsdp::Tensor::empty(a.shape(), fsdp::DType::float64);
  const fsdp::Tensor y = fsdp::Tensor::empty(b.shape(), fsdp::DType::float64);
  fsdp::ops::copy(x, a);
  fsdp::ops::copy(y, b);
  const auto xs = x.to_vector<double>(), ys = y.to_vector<double>();
  double largest = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const double error = std::abs(xs[i] - ys[i]) / std::max(1.0, std::abs(ys[i]));
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

/// What one rounding to T may change a value near 1 by, twice.
template <class T>
double tolerance() {
  if (std::is_same_v<T, float>) return 1e-6;
  return std::is_same_v<T, fsdp::BFloat16> ? 1.0 / 128 : 1.0 / 1024;
}

/// Lengths that fit no vector, no warp and no block.
inline const std::vector<std::int64_t>& awkward_sizes() {
  static const std::vector<std::int64_t> sizes = {0, 1, 31, 33, 1024, 1029, 5003};
  return sizes;
}

}  // namespace cuda_test
