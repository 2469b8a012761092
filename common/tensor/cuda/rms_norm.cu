// Bytes an element: forward 2 times its size (the second reading of x finds it in the cache), 4
// with an addition; backward 3 (4 if dx adds); about 4, 5 and 10 flops. Without room for sums of
// parts, dweight reads x and dout once more. So memory limits all of them: on a card of 3.3 TB/s, 8
// bytes an element of float32 are 410 G elements/s forward.
#include "tensor/cuda/rms_norm.h"

#include "tensor/cuda/rows.h"

#include <algorithm>

namespace fsdp::cuda {
namespace {

/// out = x weight / rms(x) of one row, by the threads that have it; `squares` are those of theirs.
template <class T>
__device__ __forceinline__ void norm_row(T* out, float* rstd, const T* x, const T* weight,
                                         float squares, std::int64_t row, std::int64_t width,
                                         float eps) {
  squares = sum_of_row(squares);
  const float factor = 1.0F / sqrtf(squares / static_cast<float>(width) + eps);
  if (threadIdx.x == 0) rstd[row] = factor;
  for_fours_of_row(width, [&](std::int64_t i) {
    float v[4], w[4], y[4];
    load_four(v, x + row * width + i, width - i);
    load_four(w, weight + i, width - i);
    for (int j = 0; j < 4; ++j) y[j] = v[j] * factor * w[j];
    store_four(out + row * width + i, y, width - i);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(T* out, float* rstd, const T* x, const T* weight, std::int64_t rows,
                   std::int64_t width, float eps) {
  const std::int64_t row = row_of_thread();
  if (row >= rows) return;
  float squares = 0;
  for_whole_rows(
      [&](auto whole) {
        for_fours_of_row(width, [&](std::int64_t i) {
          float v[4];
          load_four(v, x + row * width + i, width - i, whole);
          for (int j = 0; j < 4; ++j) squares += v[j] * v[j];
        });
      },
      width, x);
  norm_row(out, rstd, x, weight, squares, row, width, eps);
}

// sum = x + y, which its thread reads again after the squares: rounded, as an addition leaves it.
template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    add_forward_kernel(T* out, float* rstd, T* sum, const T* x, const T* y, const T* weight,
                       std::int64_t rows, std::int64_t width, float eps) {
  const std::int64_t row = row_of_thread(), at = row * width;
  if (row >= rows) return;
  float squares = 0;
  for_whole_rows(
      [&](auto whole) {
        for_fours_of_row(width, [&](std::int64_t i) {
          float v[4], w[4];
          load_four(v, x + at + i, width - i, whole);
          load_four(w, y + at + i, width - i, whole);
          for (int j = 0; j < 4; ++j) {
            v[j] = widen(narrow<T>(v[j] + w[j]));
            squares += v[j] * v[j];
          }
          store_four(sum + at + i, v, width - i);
        });
      },
      width, x, y);
  norm_row(out, rstd, static_cast<const T*>(sum), weight, squares, row, width, eps);
}

/// dx = rstd (w dy - x̂ mean(w dy x̂)), x̂ = x rstd, of one row, by the threads that have it. Calls
/// note(i, dy, x̂) with every four of theirs.
template <class T, class Note>
__device__ __forceinline__ void input_gradient(T* dx, bool add, const T* dout, const T* x,
                                               const T* weight, const float* rstd, std::int64_t row,
                                               std::int64_t width, Note note) {
  const std::int64_t at = row * width;
  float dot = 0;
  for_whole_rows(
      [&](auto whole) {
        for_fours_of_row(width, [&](std::int64_t i) {
          float dy[4], w[4], v[4];
          load_four(dy, dout + at + i, width - i, whole);
          load_four(w, weight + i, width - i, whole);
          load_four(v, x + at + i, width - i, whole);
          for (int j = 0; j < 4; ++j) dot += dy[j] * w[j] * v[j];
        });
      },
      width, dout, weight, x);
  dot = sum_of_row(dot);
  const float factor = rstd[row];
  const float along = dot * factor * factor * factor / static_cast<float>(width);
  for_fours_of_row(width, [&](std::int64_t i) {
    float dy[4], w[4], v[4], value[4], held[4] = {};
    load_four(dy, dout + at + i, width - i);
    load_four(w, weight + i, width - i);
    load_four(v, x + at + i, width - i);
    if (add) load_four(held, dx + at + i, width - i);
    for (int j = 0; j < 4; ++j) {
      value[j] = dy[j] * w[j] * factor - v[j] * along;
      if (add) value[j] = held[j] + value[j];
    }
    store_four(dx + at + i, value, width - i);
    for (int j = 0; j < 4; ++j) v[j] *= factor;
    note(i, dy, v);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    input_kernel(T* dx, bool add, const T* dout, const T* x, const T* weight, const float* rstd,
                 std::int64_t rows, std::int64_t width) {
  const std::int64_t row = row_of_thread();
  if (row >= rows) return;
  input_gradient(dx, add, dout, x, weight, rstd, row, width, [](auto...) {});
}

constexpr std::int64_t kMostParts = 512;    // of the rows: four at once fill a multiprocessor
constexpr std::int64_t kMostShared = 8192;  // columns times rows that a block has at once

/// A row of sums has whole fours.
std::int64_t sums_of_part(std::int64_t width) { return (width + 3) / 4 * 4; }

// dx, and what the rows of each block add to dweight: a thread has the same columns of all its
// rows, and sums them in shared memory. Then the block's rows are added one after another.
template <class T>
__global__ void __launch_bounds__(kThreads)
    input_and_parts_kernel(T* dx, bool add, float* parts, const T* dout, const T* x,
                           const T* weight, const float* rstd, std::int64_t rows,
                           std::int64_t width) {
  __shared__ Four<float> sums[kMostShared / 4];
  const std::int64_t fours = (width + 3) / 4;
  Four<float>* const mine = sums + threadIdx.y * fours;
  for_fours_of_row(width, [&](std::int64_t i) { mine[i / 4] = {}; });
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = row_of_thread(); row < rows; row += step) {
    const auto note = [&](std::int64_t i, const float(&dy)[4], const float(&normed)[4]) {
      Four<float> sum = mine[i / 4];
      for (int j = 0; j < 4; ++j) sum.values[j] += dy[j] * normed[j];
      mine[i / 4] = sum;
    };
    input_gradient(dx, add, dout, x, weight, rstd, row, width, note);
    if (blockDim.x > 32) __syncthreads();  // before sum_of_row() again
  }
  __syncthreads();
  auto* const part = reinterpret_cast<Four<float>*>(parts) + blockIdx.x * fours;
  for (std::int64_t k = threadIdx.y * blockDim.x + threadIdx.x; k < fours; k += kThreads) {
    Four<float> total = sums[k];
    for (unsigned y = 1; y < blockDim.y; ++y) {
      for (int j = 0; j < 4; ++j) total.values[j] += sums[y * fours + k].values[j];
    }
    part[k] = total;
  }
}

// A warp has 32 columns and every eighth part. Then the warps are added one after another.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_parts_kernel(T* dweight, bool add, const float* parts, int count, std::int64_t width,
                     std::int64_t stride) {
  __shared__ float of_warps[kThreads / 32][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t column = std::int64_t{32} * blockIdx.x + lane;
  float sum = 0;
  if (column < width) {
    FSDP_UNROLL_FOUR
    for (int part = warp; part < count; part += kThreads / 32) sum += parts[part * stride + column];
  }
  of_warps[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= width) return;
  float total = 0;
  for (int each = 0; each < kThreads / 32; ++each) total += of_warps[each][lane];
  dweight[column] = narrow<T>(add ? widen(dweight[column]) + total : total);
}

constexpr int kColumns = 16, kQuads = kColumns / 4;  // of a block
constexpr int kRowLanes = 128, kAtOnce = 6;          // rows of a thread whose loads are under way
constexpr int kWeightThreads = kQuads * kRowLanes;

// Row lane y has four threads, and sums the rows y, y + 128, …. Then the eight row lanes of a warp
// are added as a tree, and the warps one after another.
template <class T>
__global__ void __launch_bounds__(kWeightThreads)
    weight_kernel(T* dweight, bool add, const T* dout, const T* x, const float* rstd,
                  std::int64_t rows, std::int64_t width) {
  __shared__ float of_warps[kWeightThreads / 32][kColumns];
  const int thread = static_cast<int>(threadIdx.x), quad = thread % kQuads;
  const std::int64_t first = std::int64_t{kColumns} * blockIdx.x, column = first + 4 * quad;
  float sums[4] = {};
  for_whole_rows(
      [&](auto whole) {
        for (std::int64_t r = thread / kQuads; r < rows; r += kAtOnce * kRowLanes) {
          float dy[kAtOnce][4], v[kAtOnce][4], factor[kAtOnce];
          FSDP_UNROLL
          for (int i = 0; i < kAtOnce; ++i) {
            const std::int64_t row = r + i * kRowLanes;
            const std::int64_t at = row * width + column, count = row < rows ? width - column : 0;
            load_four(dy[i], dout + at, count, whole);
            load_four(v[i], x + at, count, whole);
            factor[i] = row < rows ? rstd[row] : 0;
          }
          FSDP_UNROLL
          for (int i = 0; i < kAtOnce; ++i) {
            FSDP_UNROLL
            for (int j = 0; j < 4; ++j) sums[j] += dy[i][j] * (v[i][j] * factor[i]);
          }
        }
      },
      width, dout, x);
  FSDP_UNROLL
  for (int j = 0; j < 4; ++j) {
    for (int apart = 16; apart >= kQuads; apart /= 2) {
      sums[j] += __shfl_xor_sync(kWholeWarp, sums[j], apart);
    }
    if (thread % 32 < kQuads) of_warps[thread / 32][4 * quad + j] = sums[j];
  }
  __syncthreads();
  const std::int64_t mine = first + thread;
  if (thread >= kColumns || mine >= width) return;
  float total = 0;
  for (int warp = 0; warp < kWeightThreads / 32; ++warp) total += of_warps[warp][thread];
  dweight[mine] = narrow<T>(add ? widen(dweight[mine]) + total : total);
}

}  // namespace

template <class T>
void rms_norm(Stream stream, T* out, float* rstd, const T* x, const T* weight, std::int64_t rows,
              std::int64_t width, double eps) {
  if (rows == 0) return;
  launch("rms_norm", blocks_for_rows(rows, width), threads_for_rows(width), 0, stream,
         forward_kernel<Element<T>>, on_device(out), rstd, on_device(x), on_device(weight), rows,
         width, static_cast<float>(eps));
}

template <class T>
void add_rms_norm(Stream stream, T* out, float* rstd, T* sum, const T* x, const T* y,
                  const T* weight, std::int64_t rows, std::int64_t width, double eps) {
  if (rows == 0) return;
  launch("add_rms_norm", blocks_for_rows(rows, width), threads_for_rows(width), 0, stream,
         add_forward_kernel<Element<T>>, on_device(out), rstd, on_device(sum), on_device(x),
         on_device(y), on_device(weight), rows, width, static_cast<float>(eps));
}

template <class T>
void rms_norm_backward(Stream stream, T* dx, bool add_dx, T* dweight, bool add_dweight,
                       const T* dout, const T* x, const T* weight, const float* rstd,
                       std::int64_t rows, std::int64_t width, std::span<std::byte> scratch) {
  const std::int64_t stride = sums_of_part(width);
  const auto room = static_cast<std::int64_t>(scratch.size() / sizeof(float));
  if (dx != nullptr && dweight != nullptr && rows > 0 && 0 < stride && stride <= room &&
      stride * threads_for_rows(width).y <= kMostShared) {
    const std::int64_t most = std::min(kMostParts, room / stride);
    const auto parts = static_cast<unsigned>(
        std::min(most, static_cast<std::int64_t>(blocks_for_rows(rows, width))));
    auto* const sums = reinterpret_cast<float*>(scratch.data());
    launch("rms_norm_backward", parts, threads_for_rows(width), 0, stream,
           input_and_parts_kernel<Element<T>>, on_device(dx), add_dx, sums, on_device(dout),
           on_device(x), on_device(weight), rstd, rows, width);
    launch("rms_norm_backward", static_cast<unsigned>((width + 31) / 32), kThreads, 0, stream,
           sum_parts_kernel<Element<T>>, on_device(dweight), add_dweight, sums,
           static_cast<int>(parts), width, stride);
    return;
  }
  // The weight's gradient first: dx may overwrite dout.
  if (dweight != nullptr && width > 0) {
    const auto blocks = static_cast<unsigned>((width + kColumns - 1) / kColumns);
    launch("rms_norm_backward", blocks, kWeightThreads, 0, stream, weight_kernel<Element<T>>,
           on_device(dweight), add_dweight, on_device(dout), on_device(x), rstd, rows, width);
  }
  if (dx != nullptr && rows > 0) {
    launch("rms_norm_backward", blocks_for_rows(rows, width), threads_for_rows(width), 0, stream,
           input_kernel<Element<T>>, on_device(dx), add_dx, on_device(dout), on_device(x),
           on_device(weight), rstd, rows, width);
  }
}

#define FSDP_FOR(T)                                                                              \
  template void rms_norm(Stream, T*, float*, const T*, const T*, std::int64_t, std::int64_t,     \
                         double);                                                                \
  template void add_rms_norm(Stream, T*, float*, T*, const T*, const T*, const T*, std::int64_t, \
                             std::int64_t, double);                                              \
  template void rms_norm_backward(Stream, T*, bool, T*, bool, const T*, const T*, const T*,      \
                                  const float*, std::int64_t, std::int64_t, std::span<std::byte>);
FSDP_FOR(float)
FSDP_FOR(BFloat16)
FSDP_FOR(Float16)
#undef FSDP_FOR

}  // namespace fsdp::cuda
