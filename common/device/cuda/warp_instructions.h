/// @file
/// @ingroup device
/// Instructions of a warp that CUDA has no functions for, for .cu files: PTX for nvcc (sm_80 and
/// later), and the same functions of the stand-in.
///
/// Of a tile of 8 x 8 16-bit floats, lane l holds one register: of row l / 4 the columns 2(l % 4)
/// and 2(l % 4) + 1, the lower half first. The operands of D(16,8) += A(16,16) · B(16,8) are such
/// tiles:
///
///     A: 4 registers: rows 0-7 and rows 8-15 of columns 0-7, then both of columns 8-15
///     B: 2 registers, each a tile of Bᵀ: k 0-7, k 8-15, so lane l has column l / 4
///     D: 4 floats: of row l / 4 the columns 2(l % 4) and + 1, then the same of row l / 4 + 8
///
/// So the D of two neighboring products, packed in pairs, is the A of a next one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace fsdp::cuda {
inline constexpr float kLog2E = 1.44269504F, kLn2 = 0.69314718F;
}

#ifndef __CUDACC__
#include <cuda_on_host/warp_instructions.h>
#else

#include <type_traits>

namespace fsdp::cuda {

using SharedAddress = unsigned;  ///< a byte of shared memory, as instructions name it

__device__ __forceinline__ SharedAddress shared_address(const void* pointer) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

/// Four tiles. Lane l passes the address of row l % 8 of tile l / 8: 16 bytes, aligned to that.
/// "volatile" and "memory" keep it between the barriers around it.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&tiles)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(row)
               : "memory");
}
/// The same, and each tile is transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&tiles)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(row)
               : "memory");
}

/// d += a · b, of __nv_bfloat16 or __half. It touches no memory, so it may move.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
#define FSDP_MMA(type)                                                       \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<T, __half>) {
    FSDP_MMA("f16");
  } else {
    FSDP_MMA("bf16");
  }
#undef FSDP_MMA
}

/// Starts a copy of Nbytes (16 or 8) from global memory, both addresses aligned to that. If not
/// `is_there`, it writes zeros and reads nothing. What it writes may be read after cp_async_wait()
/// and a barrier.
template <int Nbytes>
__device__ __forceinline__ void cp_async(SharedAddress to, const void* from, bool is_there) {
  static_assert(Nbytes == 16 || Nbytes == 8);
  const unsigned nbytes = is_there ? Nbytes : 0;
  if constexpr (Nbytes == 16) {  // past the L1 cache: only 16 bytes can
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(nbytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(nbytes)
                 : "memory");
  }
}
/// Waits for all copies that this thread has started.
__device__ __forceinline__ void cp_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Stores a vector of 16 or 8 bytes; `to` is aligned to that.
template <class Vector>
__device__ __forceinline__ void store_vector(SharedAddress to, const Vector& vector) {
  static_assert(sizeof vector == 16 || sizeof vector == 8);
  unsigned words[sizeof vector / 4];
  memcpy(words, &vector, sizeof words);
  if constexpr (sizeof vector == 16) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
  } else {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(words[0]), "r"(words[1])
                 : "memory");
  }
}

/// Says that a kernel is launched with at most Nbytes of dynamic shared memory. It costs nothing:
/// make cuda-kernels reads it in the PTX, and the stand-in compares it with the launch.
template <std::size_t Nbytes>
__device__ __forceinline__ void note_shared_memory() {
  asm volatile("// dynamic shared memory: %0" ::"n"(Nbytes));
}

/// 2^x by the hardware's table, within 2 units in the last place; subnormal results are 0.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Both rounded to __nv_bfloat16 or __half; `low` in the lower half.
template <class T>
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned pair;
  if constexpr (std::is_same_v<T, __half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

/// The same number. nvcc does not know that, so it computes what follows from it where it is used,
/// and not before the loop, in registers that are then taken all the time.
__device__ __forceinline__ unsigned computed_here(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace fsdp::cuda

#endif
