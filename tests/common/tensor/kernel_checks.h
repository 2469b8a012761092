/// @file
/// What the tests of the kernels share: values, distances, and the promise that neither threads nor
/// alignment change a bit.
#pragma once

#include "base/philox.h"
#include "device/context.h"
#include "support/catch.h"
#include "tensor/ops.h"
#include "tensor/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace kernel_checks {

using fsdp::Context;
using fsdp::ContextScope;
using fsdp::DType;
using fsdp::Shape;
using fsdp::Tensor;

/// Doubles in (low, high) that float32 holds exactly, the same on every machine.
inline std::vector<double> random_values(std::int64_t count, std::uint64_t seed, double low = -1,
                                         double high = 1) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t word = fsdp::random_word(seed, static_cast<std::uint64_t>(i));
    const double unit = (static_cast<double>(word >> 8) + 0.5) * 0x1p-24;
    values.push_back(static_cast<double>(static_cast<float>(low + unit * (high - low))));
  }
  return values;
}

/// Where and by how many threads a kernel runs: tensors begin at element `offset` of their storage.
struct Placement {
  std::int64_t offset = 0;

  Tensor empty(const Shape& shape, DType dtype) const {
    const Tensor whole = Tensor::empty({offset + fsdp::numel_of(shape)}, dtype);
    return Tensor::view_of(whole.storage(), offset, shape, dtype);
  }
  Tensor values(const std::vector<double>& values, const Shape& shape, DType dtype) const {
    Tensor t = empty(shape, dtype);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::float32) t.data<float>()[i] = static_cast<float>(values[i]);
      if (dtype == DType::float64) t.data<double>()[i] = values[i];
      if (dtype == DType::bfloat16) t.data<fsdp::BFloat16>()[i] = fsdp::BFloat16(values[i]);
      if (dtype == DType::float16) t.data<fsdp::Float16>()[i] = fsdp::Float16(values[i]);
    }
    return t;
  }
  Tensor indices(const std::vector<std::int32_t>& values) const {
    Tensor t = empty({static_cast<std::int64_t>(values.size())}, DType::int32);
    for (std::size_t i = 0; i < values.size(); ++i) t.data<std::int32_t>()[i] = values[i];
    return t;
  }
};

inline std::vector<double> doubles_of(const Tensor& t) {
  if (t.dtype() == DType::float64) return t.to_vector<double>();
  const Tensor wide = Tensor::empty(t.shape(), DType::float32);
  fsdp::ops::copy(wide, t);
  const std::vector<float> values = wide.to_vector<float>();
  return {values.begin(), values.end()};
}

/// ‖a − b‖₂ / ‖b‖₂; NaN if either has one. Norms below `least` count as `least`.
inline double distance(const std::vector<double>& a, const std::vector<double>& b,
                       double least = 0) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  norm = std::max(norm, least * least);
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}
inline double distance(const Tensor& a, const std::vector<double>& b, double least = 0) {
  return distance(doubles_of(a), b, least);
}

inline double tolerance(DType dtype) { return dtype == DType::float32 ? 2e-6 : 1e-14; }

/// The outputs of `run(placement)`, which must be the same bits with 1, 2 and 3 threads and
/// wherever its tensors begin.
template <class Run>
std::vector<Tensor> run_everywhere(Run run) {
  std::vector<Tensor> expected;
  for (const int threads : {1, 2, 3}) {
    if (FSDP_SANITIZED && threads != 2) continue;
    Context context({.threads = threads});
    const ContextScope scope(context);
    for (const std::int64_t offset : {0, 1, 9}) {
      const std::vector<Tensor> outputs = run(Placement{offset});
      if (expected.empty()) {
        // Copied out of the context that is about to go.
        for (const Tensor& t : outputs) {
          Context plain;
          const ContextScope outside(plain);
          expected.push_back(Placement{}.values(doubles_of(t), t.shape(), t.dtype()));
        }
        continue;
      }
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        INFO("output " << i << ", " << threads << " threads, offset " << offset);
        REQUIRE(outputs[i].nbytes() == expected[i].nbytes());
        CHECK(std::memcmp(outputs[i].raw(), expected[i].raw(), outputs[i].nbytes()) == 0);
      }
    }
  }
  return expected;
}

inline const std::vector<DType> kFloating = {DType::float32, DType::float64};
inline const std::vector<DType> kHalves = {DType::bfloat16, DType::float16};

}  // namespace kernel_checks
