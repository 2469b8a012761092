/// @file
/// Correct kernels, each as one function of the host.
#pragma once

#include <cuda_runtime.h>

namespace samples {

/// out[i] = a[i] + b[i]; four elements per thread where n allows. Pointers to multiples of 16.
void add(cudaStream_t stream, float* out, const float* a, const float* b, int n);
/// sums[r] = the sum of row r of x [rows, width], by a block of `threads` (a multiple of 32).
void sum_rows(cudaStream_t stream, float* sums, const float* x, int rows, int width,
              unsigned threads);
/// out [columns, rows] = the transpose of x [rows, columns], through tiles in shared memory.
void transpose(cudaStream_t stream, float* out, const float* x, int rows, int columns);
/// out[i] = in[n - 1 - i], through dynamic shared memory of one block; n <= 1024.
void reverse(cudaStream_t stream, float* out, const float* in, int n);
/// counts[v] += how often v occurs in values [n], which are below 8.
void histogram(cudaStream_t stream, int* counts, const int* values, int n);
/// out[i] = the sum of x[0 … i], by one warp; n <= 32.
void scan_warp(cudaStream_t stream, int* out, const int* x, int n);
/// out[i] = how many threads of the grid came before thread i, by a counter at `next`, which is 0.
void take_tickets(cudaStream_t stream, int* out, int* next, int blocks);
/// out [5, 32]: by rows, what lane i gets from shfl_down(3), shfl(5) and shfl_xor(9), each in
/// segments of 8 lanes; ballot(i % 3 == 0); and any(i == 7) + 2 * all(i < 32).
void ask_lanes(cudaStream_t stream, int* out);

}  // namespace samples
