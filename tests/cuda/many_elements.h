/// @file
/// Operands of more than 2^31 elements. Of each grid only the ends run, on memory that takes no
/// page before it is written: an index that 32 bits do not hold leads out of the operand, or to its
/// beginning. What the last elements become is what the same kernel makes of them alone.
///
/// The last row begins beyond 2^31: else a product that 32 bits do not hold would be right.
/// What one block reads alone has no test: cuda::sum(), and more than 2^31 targets.
#pragma once

#include "cuda/kernels.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace cuda_test {

/// What the threads of a pointwise kernel take at a time: at most 4096 blocks of 256, four each.
inline constexpr std::int64_t kSweep = std::int64_t{4} * 256 * 4096;
/// Beyond 2^31, and so that the last elements are the last block's.
inline constexpr std::int64_t kMany = (std::int64_t{1} << 31) + kSweep;

template <class T>
void append(std::vector<std::byte>& all, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  all.insert(all.end(), bytes.begin(), bytes.end());
}

/// `n` elements. The `count` ones from each of `places` on are values(…, salt), and all others 0;
/// with salt 0 all are.
template <class T>
class Vast {
 public:
  Vast(cudaStream_t stream, std::int64_t n, std::vector<std::int64_t> places, std::int64_t count,
       std::int64_t salt)
      : places_(std::move(places)),
        count_(static_cast<std::size_t>(count)),
        held_(stream, salt == 0 ? std::vector<T>(places_.size() * count_)
                                : values<T>(std::ssize(places_) * count, salt)) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(n) * sizeof(T)));
    for (std::size_t i = 0; i < places_.size(); ++i)
      copy(data_ + places_[i], held_.data + i * count_);
  }
  Vast(const Vast&) = delete;
  Vast& operator=(const Vast&) = delete;
  ~Vast() {
    held_.free();
    cudaFree(data_);
  }
  operator T*() { return data_; }  // NOLINT(google-explicit-constructor): as kernels take it

  /// Appends the bytes that these elements have now.
  void note(std::vector<std::byte>& all) {
    for (std::size_t i = 0; i < places_.size(); ++i)
      copy(held_.data + i * count_, data_ + places_[i]);
    append(all, held_.read_back());
  }

 private:
  void copy(T* to, const T* from) {
    check(cudaMemcpyAsync(to, from, count_ * sizeof(T), cudaMemcpyDeviceToDevice, held_.stream));
    check(cudaStreamSynchronize(held_.stream));
  }
  std::vector<std::int64_t> places_;
  std::size_t count_;
  OnDevice<T> held_;
  T* data_ = nullptr;
};

inline Plan vast_plan() {
  Plan plan = requested_or(Plan{});
  plan.devices = 1;
  plan.device_nbytes = std::size_t{1} << 38;
  plan.runs_ends_only = true;
  return plan;
}

/// One run: makes operands of so many rows, whose last ones alone have values.
class Run {
 public:
  Run(cudaStream_t on, std::int64_t all, std::int64_t last) : stream(on), rows(all), few_(last) {}

  template <class T>
  Vast<T> make(std::int64_t width, std::int64_t salt) const {
    return Vast<T>(stream, rows * width, {(rows - few_) * width}, few_ * width, salt);
  }

  cudaStream_t stream;
  std::int64_t rows;
  std::vector<std::byte> ends = {};

 private:
  std::int64_t few_;
};

/// Runs `program` on `rows` rows and on `few`, of which the last `few` have values: both must come
/// to the same.
inline void check_ends(std::int64_t rows, std::int64_t few,
                       const std::function<void(Run&)>& program) {
  std::vector<std::vector<std::byte>> ends;
  for (const std::int64_t n : {rows, few}) {
    Session session(vast_plan());
    const cudaStream_t stream = new_stream();
    Run run(stream, n, few);
    program(run);
    check(cudaStreamDestroy(stream));
    CHECK_NOTHROW(session.finish());
    ends.push_back(run.ends);
  }
  CHECK(!ends[0].empty());
  CHECK((ends[0] == ends[1]));  // and no bytes are printed
}

}  // namespace cuda_test
