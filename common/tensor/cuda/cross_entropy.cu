// Bytes a logit: its size for the loss, and twice its size with the gradient, whose second reading
// finds the row in the cache while such rows fit: up to 190,000 logits of 16 bits, with one row for
// each of 132 multiprocessors and 50 MB; about 15 and 27 flops, two of them exponentials. So memory
// limits both: on a card of 3.3 TB/s, 4 bytes a logit of bfloat16 are 825 G logits/s.
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

/// Threads of a row that has a block: so many that there is only one row under way for each
/// multiprocessor, which leaves most cache for it until it is read again.
constexpr int kThreadsOfRow = 1024;

dim3 threads_of_rows(std::int64_t width) {
  return width <= kWarpWidth ? threads_for_rows(width) : dim3(kThreadsOfRow);
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

/// The sum over the lanes of a warp, in its first.
__device__ LogSum total_of_warp(LogSum mine) {
  for (int apart = 16; apart > 0; apart /= 2) {
    LogSum other;
    other.highest = __shfl_down_sync(kWholeWarp, mine.highest, apart);
    other.sum = __shfl_down_sync(kWholeWarp, mine.sum, apart);
    mine.add(other);
  }
  return mine;
}

/// The sum over the threads of a row, in its first.
__device__ LogSum total_of_row(LogSum mine) {
  __shared__ float highest[kThreadsOfRow / 32], sums[kThreadsOfRow / 32];
  const unsigned warp = threadIdx.x / 32, warps = blockDim.x / 32;
  mine = total_of_warp(mine);
  if (warps == 1) return mine;
  if (threadIdx.x % 32 == 0) {
    highest[warp] = mine.highest;
    sums[warp] = mine.sum;
  }
  __syncthreads();
  if (warp > 0) return mine;
  mine = {};
  if (threadIdx.x < warps) {
    mine.highest = highest[threadIdx.x];
    mine.sum = sums[threadIdx.x];
  }
  return total_of_warp(mine);
}

// Of a thread, before their sum joins the others, which takes two exponentials.
constexpr int kFours = 4;

/// Of the elements of a row that its thread has.
template <class T>
__device__ LogSum sum_of_thread(const T* row, std::int64_t width) {
  const std::int64_t apart = 4 * static_cast<std::int64_t>(blockDim.x);
  LogSum sum;
  for_whole_rows(
      [&](auto whole) {
        for (std::int64_t i = 4 * threadIdx.x; i < width; i += kFours * apart) {
          float x[kFours][4];
          LogSum some;
          FSDP_UNROLL
          for (int f = 0; f < kFours; ++f) {
            const std::int64_t at = i + f * apart;
            load_four(x[f], row + at, width - at, whole, -INFINITY);
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
      width, row);
  return sum;
}

/// The number that the first thread of a row has, in all of them.
__device__ float of_first_thread(float value) {
  __shared__ float of_block;
  if (blockDim.x == 32) return __shfl_sync(kWholeWarp, value, 0);
  if (threadIdx.x == 0) of_block = value;
  __syncthreads();
  return of_block;
}

// The loss of each row, and the gradient of its logits unless `dlogits` is null.
template <class T>
__global__ void __launch_bounds__(kThreadsOfRow, 1)
    row_kernel(float* losses, T* dlogits, const CountedRows* counted, const T* logits,
               const std::int32_t* targets, std::int64_t rows, std::int64_t width) {
  const std::int64_t row = row_of_thread(), at = row * width;
  if (row >= rows) return;
  const std::int32_t target = targets[row];
  const bool is_counted = counts(target, row, width, nullptr);
  float shift = 0;  // the logarithm of the row's sum
  if (is_counted) {
    const LogSum sum = total_of_row(sum_of_thread(logits + at, width));
    shift = of_first_thread(sum.highest + logf(sum.sum));
  }
  if (threadIdx.x == 0 && !is_counted) losses[row] = 0;
  if (dlogits == nullptr) {
    if (threadIdx.x == 0 && is_counted) losses[row] = shift - widen(logits[at + target]);
    return;
  }
  const float by = counted->factor;
  for_fours_of_row(width, [&](std::int64_t i) {
    float x[4], dx[4] = {};
    if (is_counted) {
      load_four(x, logits + at + i, width - i);
      for (int j = 0; j < 4; ++j) {
        dx[j] = exp_of(x[j] - shift) * by;
        if (i + j != target) continue;
        dx[j] -= by;
        losses[row] = shift - x[j];
      }
    }
    store_four(dlogits + at + i, dx, width - i);
  });
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
__global__ void __launch_bounds__(kThreadsOfOne)
    count_kernel(CountedRows* result, float dloss, const std::int32_t* targets, std::int64_t rows,
                 std::int64_t width, IndexError* error) {
  int counted = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreadsOfOne) {
    if (counts(targets[row], row, width, error)) ++counted;
  }
  counted = sum_to_first(counted);
  if (threadIdx.x != 0) return;
  result->count = counted;
  result->factor = counted == 0 ? 0.0F : dloss / static_cast<float>(counted);
}

// One block.
__global__ void __launch_bounds__(kThreadsOfOne)
    loss_kernel(float* loss, const float* losses, const CountedRows* counted, std::int64_t rows) {
  double total = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreadsOfOne) {
    total += static_cast<double>(losses[row]);
  }
  total = sum_to_first(total);
  if (threadIdx.x != 0) return;
  const int count = counted->count;
  *loss = count == 0 ? 0.0F : static_cast<float>(total / static_cast<double>(count));
}

}  // namespace

template <class T>
void cross_entropy(Stream stream, float* loss, float* losses, T* dlogits, float dloss,
                   CountedRows* counted, const T* logits, const std::int32_t* targets,
                   std::int64_t rows, std::int64_t width, IndexError* error) {
  launch("cross_entropy", 1, kThreadsOfOne, 0, stream, count_kernel, counted, dloss, targets, rows,
         width, error);
  launch("cross_entropy", blocks_for_rows(rows, width), threads_of_rows(width), 0, stream,
         row_kernel<Element<T>>, losses, on_device(dlogits), counted, on_device(logits), targets,
         rows, width);
  launch("cross_entropy", 1, kThreadsOfOne, 0, stream, loss_kernel, loss, losses, counted, rows);
}

#define FSDP_FOR(T)                                                                      \
  template void cross_entropy(Stream, float*, float*, T*, float, CountedRows*, const T*, \
                              const std::int32_t*, std::int64_t, std::int64_t, IndexError*);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
