/// @file
/// device/cuda/warp_instructions.h for the stand-in: the same functions. The last two parameters of
/// those that a whole warp must call are the place of the call.
#pragma once

#include "kernel_side.h"

#include <cmath>
#include <cstdint>

namespace cuda_on_host {

/// `row` of each lane, and what ldmatrix gives the calling one.
void load_tiles(unsigned (&tiles)[4], const void* row, bool transposed, Site site);
/// d += a · b: an element's terms are added with k ascending, each by an fma. A tensor core adds in
/// an order of its own.
template <class T>
void multiply_tiles(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site);
/// A copy is done when its thread waits for it. Until then its destination is NaN, so a kernel that
/// does not wait computes NaN, and one that waits behind the barrier is a race.
void start_copy(void* to, const void* from, std::size_t nbytes, bool is_there);
void finish_copies();
/// A kernel that is launched with more dynamic shared memory than it says is a Misuse.
void check_shared_memory(std::size_t most);
/// Announced here: g++ may not trace the store of a struct.
void store(void* to, const void* from, std::size_t nbytes);

}  // namespace cuda_on_host

namespace fsdp::cuda {

/// A pointer has more bits here than an address of shared memory on a card.
using SharedAddress = std::intptr_t;
inline SharedAddress shared_address(const void* pointer) {
  return reinterpret_cast<SharedAddress>(pointer);
}

inline void ldmatrix_x4(unsigned (&tiles)[4], SharedAddress row,
                        const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  cuda_on_host::load_tiles(tiles, reinterpret_cast<const void*>(row), false,
                           {file, line, "ldmatrix_x4"});
}
inline void ldmatrix_x4_trans(unsigned (&tiles)[4], SharedAddress row,
                              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  cuda_on_host::load_tiles(tiles, reinterpret_cast<const void*>(row), true,
                           {file, line, "ldmatrix_x4_trans"});
}
template <class T>
void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  cuda_on_host::multiply_tiles<T>(d, a, {b0, b1}, {file, line, "mma_m16n8k16"});
}

template <int Nbytes>
void cp_async(SharedAddress to, const void* from, bool is_there) {
  static_assert(Nbytes == 16 || Nbytes == 8);
  cuda_on_host::start_copy(reinterpret_cast<void*>(to), from, Nbytes, is_there);
}
inline void cp_async_wait() { cuda_on_host::finish_copies(); }

template <class Vector>
void store_vector(SharedAddress to, const Vector& vector) {
  static_assert(sizeof vector == 16 || sizeof vector == 8);
  cuda_on_host::store(reinterpret_cast<void*>(to), &vector, sizeof vector);
}

template <std::size_t Nbytes>
void note_shared_memory() {
  cuda_on_host::check_shared_memory(Nbytes);
}

inline float fast_exp2(float x) { return std::exp2(x); }

template <class T>
unsigned pack(float low, float high) {
  const T pair[2] = {T(low), T(high)};
  return pair[0].bits | static_cast<unsigned>(pair[1].bits) << 16U;
}

template <class T>
T computed_here(T x) {
  return x;
}

}  // namespace fsdp::cuda
