/// @file
/// Products and casts, as the host calls them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace samples {

/// c [16, 16] += a·b by one warp, all by rows, b transposed if so. `threads` of the warp multiply:
/// less than 32 is a mistake.
template <class T>
void multiply_tile(cudaStream_t stream, float* c, const T* a, const T* b, bool transposed,
                   int threads = 32);
/// out [32, 4] = the rows of `in` [rows, 4], and then rows of zeros, from the last to the first.
/// They go through shared memory, where each is read before it must have arrived, if not `waits`.
void copy_rows(cudaStream_t stream, float* out, const float* in, int rows, bool waits);
/// Rounds each element to 16 bits.
void round_to_half(cudaStream_t stream, __half* out, const float* in, int n);
void round_to_bfloat16(cudaStream_t stream, __nv_bfloat16* out, const float* in, int n);

/// c [m, n] = a·b, all by rows, a [m, k] and b [k, n]; through cuBLASLt, which has its matrices by
/// columns. `workspace` has room for `workspace_nbytes` bytes of the device.
void multiply(cudaStream_t stream, float* c, const float* a, const float* b, int m, int n, int k,
              void* workspace, std::size_t workspace_nbytes);
void multiply(cudaStream_t stream, __nv_bfloat16* c, const __nv_bfloat16* a, const __nv_bfloat16* b,
              int m, int n, int k, void* workspace, std::size_t workspace_nbytes);

}  // namespace samples
