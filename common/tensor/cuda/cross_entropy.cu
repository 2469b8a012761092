// Bytes a logit: its size forward, 2 times its size backward; about 15 and 12 flops, one of them an
// exponential. So memory limits both: on a card of 3.3 TB/s, 4 bytes a logit of bfloat16 are 825 G
// logits/s backward. The loss itself reads one logit per row.
#include "tensor/cuda/cross_entropy.h"

#include "device/cuda/warp_instructions.h"
#include "tensor/cuda/index_check.h"
#include "tensor/cuda/rows.h"

#include <cfloat>

namespace fsdp::cuda {
namespace {

constexpr std::int32_t kIgnored = -100;  // ops::kIgnoredTarget

__device__ bool counts(std::int32_t target, std::int64_t row, std::int64_t width,
                       IndexError* error) {
  return target != kIgnored && is_in_range(target, row, width, error != nullptr, error);
}

/// e^x for x <= 0, within 3 units in the last place where it counts in a sum.
__device__ __forceinline__ float exp_of(float x) { return fast_exp2(x * kLog2E); }

/// Σ e^(x - highest), while the maximum rises.
struct LogSum {
  float highest = -FLT_MAX, sum = 0;

  __device__ void add(const LogSum& other) {
    const float top = fmaxf(highest, other.highest);
    sum = sum * exp_of(highest - top) + other.sum * exp_of(other.highest - top);
    highest = top;
  }
};

/// The sum over the threads of a row, in its first.
__device__ LogSum total_of_row(LogSum mine) {
  __shared__ float highest[kThreads / 32], sums[kThreads / 32];
  const unsigned warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int apart = 16; apart > 0; apart /= 2) {
    LogSum other;
    other.highest = __shfl_down_sync(kWholeWarp, mine.highest, apart);
    other.sum = __shfl_down_sync(kWholeWarp, mine.sum, apart);
    mine.add(other);
  }
  if (warps == 1) return mine;
  if (threadIdx.x % 32 == 0) {
    highest[warp] = mine.highest;
    sums[warp] = mine.sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned other = 1; other < warps; ++other) {
      LogSum next;
      next.highest = highest[other];
      next.sum = sums[other];
      mine.add(next);
    }
  }
  return mine;
}

constexpr int kFours =
    4;  // of a thread, before their sum joins the others: two exponentials a time

template <class T>
__global__ void __launch_bounds__(kThreads)
    log_sum_kernel(float* lse, const T* logits, std::int64_t rows, std::int64_t width) {
  const std::int64_t row = row_of_thread(), apart = 4 * static_cast<std::int64_t>(blockDim.x);
  if (row >= rows) return;
  LogSum sum;
  for_whole_rows(
      [&](auto whole) {
        for (std::int64_t i = 4 * threadIdx.x; i < width; i += kFours * apart) {
          float x[kFours][4];
          LogSum some;
          FSDP_UNROLL
          for (int f = 0; f < kFours; ++f) {
            const std::int64_t at = i + f * apart;
            load_four(x[f], logits + row * width + at, width - at, whole, -INFINITY);
          }
          FSDP_UNROLL
          for (int f = 0; f < kFours; ++f) {
            for (int j = 0; j < 4; ++j) some.highest = fmaxf(some.highest, x[f][j]);
          }
          FSDP_UNROLL
          for (int f = 0; f < kFours; ++f) {
            for (int j = 0; j < 4; ++j) some.sum += exp_of(x[f][j] - some.highest);
          }
          sum.add(some);
        }
      },
      width, logits);
  sum = total_of_row(sum);
  if (threadIdx.x == 0) lse[row] = sum.highest + logf(sum.sum);
}

constexpr int kThreadsOfOne = 1024;  // of a block that works alone

/// The sum over a block of kThreadsOfOne threads, in thread 0: halves are added until one is left.
template <class Number>
__device__ Number sum_to_first(Number value) {
  __shared__ Number of_threads[kThreadsOfOne];
  of_threads[threadIdx.x] = value;
  for (unsigned half = kThreadsOfOne / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      value += of_threads[threadIdx.x + half];
      of_threads[threadIdx.x] = value;
    }
  }
  return value;
}

// One block.
template <class T>
__global__ void __launch_bounds__(kThreadsOfOne, 1)
    loss_kernel(float* loss, const float* lse, const T* logits, const std::int32_t* targets,
                std::int64_t rows, std::int64_t width, IndexError* error) {
  double total = 0;
  int counted = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreadsOfOne) {
    const std::int32_t target = targets[row];
    if (!counts(target, row, width, error)) continue;
    ++counted;
    total +=
        static_cast<double>(lse[row]) - static_cast<double>(widen(logits[row * width + target]));
  }
  total = sum_to_first(total);
  counted = sum_to_first(counted);
  if (threadIdx.x == 0) {
    *loss = counted == 0 ? 0.0F : static_cast<float>(total / static_cast<double>(counted));
  }
}

// One block.
__global__ void __launch_bounds__(kThreadsOfOne)
    factor_kernel(float* factor, const float* dloss, const std::int32_t* targets, std::int64_t rows,
                  std::int64_t width, IndexError* error) {
  int counted = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreadsOfOne) {
    if (counts(targets[row], row, width, error)) ++counted;
  }
  counted = sum_to_first(counted);
  if (threadIdx.x == 0) *factor = counted == 0 ? 0.0F : *dloss / static_cast<float>(counted);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(T* dlogits, const float* factor, const T* logits, const std::int32_t* targets,
                    const float* lse, std::int64_t rows, std::int64_t width) {
  const std::int64_t row = row_of_thread(), at = row * width;
  if (row >= rows) return;
  const std::int32_t target = targets[row];
  const bool is_counted = counts(target, row, width, nullptr);
  const float by = *factor, shift = lse[row];
  for_fours_of_row(width, [&](std::int64_t i) {
    float x[4], dx[4] = {};
    if (is_counted) {
      load_four(x, logits + at + i, width - i);
      for (int j = 0; j < 4; ++j) {
        dx[j] = exp_of(x[j] - shift) * by;
        if (i + j == target) dx[j] -= by;
      }
    }
    store_four(dlogits + at + i, dx, width - i);
  });
}

}  // namespace

template <class T>
void cross_entropy(Stream stream, float* loss, float* lse, const T* logits,
                   const std::int32_t* targets, std::int64_t rows, std::int64_t width,
                   IndexError* error) {
  launch("cross_entropy", blocks_for_rows(rows, width), threads_for_rows(width), 0, stream,
         log_sum_kernel<Element<T>>, lse, on_device(logits), rows, width);
  launch("cross_entropy", 1, kThreadsOfOne, 0, stream, loss_kernel<Element<T>>, loss, lse,
         on_device(logits), targets, rows, width, error);
}

template <class T>
void cross_entropy_backward(Stream stream, T* dlogits, float* factor, const float* dloss,
                            const T* logits, const std::int32_t* targets, const float* lse,
                            std::int64_t rows, std::int64_t width, IndexError* error) {
  launch("cross_entropy_backward", 1, kThreadsOfOne, 0, stream, factor_kernel, factor, dloss,
         targets, rows, width, error);
  launch("cross_entropy_backward", blocks_for_rows(rows, width), threads_for_rows(width), 0, stream,
         backward_kernel<Element<T>>, on_device(dlogits), factor, on_device(logits), targets, lse,
         rows, width);
}

#define FSDP_FOR(T)                                                                                \
  template void cross_entropy(Stream, float*, float*, const T*, const std::int32_t*, std::int64_t, \
                              std::int64_t, IndexError*);                                          \
  template void cross_entropy_backward(Stream, T*, float*, const float*, const T*,                 \
                                       const std::int32_t*, const float*, std::int64_t,            \
                                       std::int64_t, IndexError*);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
