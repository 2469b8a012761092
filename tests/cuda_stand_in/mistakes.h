/// @file
/// Wrong kernels. Each is right but for one mistake.
#pragma once

#include <cuda_runtime.h>

namespace mistakes {

enum class Kernel {
  no_barrier,            ///< reads its neighbor's element of shared memory without a barrier
  no_second_barrier,     ///< overwrites shared memory that others still read
  divergent_barrier,     ///< half of the threads leave before the barrier
  two_barriers,          ///< the halves of a block wait at two barriers
  divergent_shuffle,     ///< a full mask where only half of the warp arrives
  wrong_mask,            ///< a mask that names lanes 0 to 15 only, in lanes 16 to 31 as well
  lane_outside_mask,     ///< reads lane 16 under a mask of lanes 0 to 15
  lanes_beyond_block,    ///< a full mask in a block of 16 threads
  past_the_end,          ///< writes out[n]
  past_the_end_of_tile,  ///< writes one element past a __shared__ array
  past_dynamic_memory,   ///< reads past the dynamic shared memory of the launch
  unwritten_tile,        ///< reads shared memory that nothing has written
  misaligned_vector,     ///< loads a float4 from out + 1
  struct_past_the_end,   ///< clears a struct of 64 bytes, whose second half is behind out
  misaligned_struct,     ///< loads a struct of 16 aligned bytes from out + 33
  same_element,          ///< all threads write out[0]
  same_element_of_tile,  ///< all threads of a block write the same element of shared memory
  between_blocks,        ///< a block reads what another one has written
  no_syncwarp,           ///< lanes exchange through shared memory without __syncwarp
  shuffle_as_barrier,    ///< the same, with a shuffle in between, which orders no memory
  late_wait,             ///< waits for its cp_async behind the barrier
  no_wait,               ///< ends with its cp_async on its way
  misaligned_copy,       ///< cp_async of 16 bytes from out + 1
  misaligned_copy_to,    ///< cp_async of 8 bytes to the second float of a tile
  misaligned_row,        ///< a row of ldmatrix that begins at the third float of a tile
  noted_less_memory,     ///< says that it needs less dynamic shared memory than it is launched with
};
constexpr int kKernels = 26;

/// Runs it with out [n = 64] in device memory, by two blocks of 32 threads each (or as it needs).
void run(Kernel kernel, cudaStream_t stream, float* out);
/// out[i] = in[i] + 1 for i below n, where `in` may be memory of the host.
void increment(cudaStream_t stream, float* out, const float* in, int n);
/// The sum of the first n floats, computed by host code that is compiled together with kernels.
float sum_on_host(const float* values, int n);

}  // namespace mistakes
