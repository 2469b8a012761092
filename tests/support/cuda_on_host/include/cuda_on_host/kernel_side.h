/// @file
/// What kernels call: coordinates, barriers, warps, atomics. The last two parameters of a barrier
/// are the place of the call, which the compiler fills in; errors name it.
#pragma once

#include "qualifiers.h"
#include "vector_types.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

namespace cuda_on_host {

struct Site {
  const char* file;
  int line;
  const char* function;
};

/// What one lane shows the others of its warp.
struct alignas(16) Slot {
  unsigned char bytes[16];
};

void block_barrier(Site site);
/// Waits for all lanes of `mask`, then returns what each of them has shown. A lane that is not in
/// `mask` has shown nothing, and must not be looked at: see lane_of().
const Slot* warp_barrier(std::uint32_t mask, const void* shown, std::size_t nbytes, Site site);
/// The lane of the calling thread.
int lane();
/// `source`, after a check that it is a lane of `mask`; else a Misuse that names the site.
int lane_of(std::uint32_t mask, int source, Site site);
/// Notes an atomic access of the calling thread.
void note_atomic(void* address, std::size_t nbytes);

template <class T>
CUDA_ON_HOST_UNTRACED T shuffle(std::uint32_t mask, T value, int source, Site site) {
  static_assert(std::is_arithmetic_v<T>, "shuffles move numbers");
  const Slot* slots = warp_barrier(mask, &value, sizeof value, site);
  T result;
  std::memcpy(&result, slots[lane_of(mask, source, site)].bytes, sizeof result);
  return result;
}

template <class T, class Update>
CUDA_ON_HOST_UNTRACED T atomic(T* address, Update update) {
  note_atomic(address, sizeof(T));
  const T old = *address;
  *address = update(old);
  return old;
}

}  // namespace cuda_on_host

#define CUDA_ON_HOST_SITE_PARAMETERS \
  const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(CUDA_ON_HOST_SITE_PARAMETERS) {
  cuda_on_host::block_barrier({file, line, "__syncthreads"});
}
inline void __syncwarp(unsigned mask = 0xffffffffU, CUDA_ON_HOST_SITE_PARAMETERS) {
  cuda_on_host::warp_barrier(mask, nullptr, 0, {file, line, "__syncwarp"});
}

/// All shuffles take segments of `width` lanes: a power of two up to 32.
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  CUDA_ON_HOST_SITE_PARAMETERS) {
  const int me = cuda_on_host::lane(), source = me ^ lane_mask;
  return cuda_on_host::shuffle(mask, value, source < (me | (width - 1)) + 1 ? source : me,
                               {file, line, "__shfl_xor_sync"});
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int delta, int width = warpSize,
                   CUDA_ON_HOST_SITE_PARAMETERS) {
  const int me = cuda_on_host::lane(), source = me + delta;
  return cuda_on_host::shuffle(mask, value, source <= (me | (width - 1)) ? source : me,
                               {file, line, "__shfl_down_sync"});
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int delta, int width = warpSize,
                 CUDA_ON_HOST_SITE_PARAMETERS) {
  const int me = cuda_on_host::lane(), source = me - delta;
  return cuda_on_host::shuffle(mask, value, source >= (me & ~(width - 1)) ? source : me,
                               {file, line, "__shfl_up_sync"});
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              CUDA_ON_HOST_SITE_PARAMETERS) {
  const int first = cuda_on_host::lane() & ~(width - 1);
  return cuda_on_host::shuffle(mask, value, first + (source & (width - 1)),
                               {file, line, "__shfl_sync"});
}

CUDA_ON_HOST_UNTRACED inline unsigned __ballot_sync(unsigned mask, int predicate,
                                                    CUDA_ON_HOST_SITE_PARAMETERS) {
  const cuda_on_host::Slot* slots =
      cuda_on_host::warp_barrier(mask, &predicate, sizeof predicate, {file, line, "__ballot_sync"});
  unsigned result = 0;
  for (unsigned i = 0; i < 32; ++i) {
    int other = 0;
    if ((mask >> i & 1U) != 0) std::memcpy(&other, slots[i].bytes, sizeof other);
    if (other != 0) result |= 1U << i;
  }
  return result;
}
inline int __any_sync(unsigned mask, int predicate, CUDA_ON_HOST_SITE_PARAMETERS) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, CUDA_ON_HOST_SITE_PARAMETERS) {
  return __ballot_sync(mask, predicate, file, line) == mask;
}

#undef CUDA_ON_HOST_SITE_PARAMETERS

template <class T>
T __ldg(const T* address) {
  return *address;
}

// Atomics on integers. Those on floats are deleted: their sums depend on the order of threads.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "no float atomics: their order is not deterministic");
  using Unsigned = std::make_unsigned_t<T>;  // wraps around, as on a card
  return cuda_on_host::atomic(address, [value](T old) {
    return static_cast<T>(static_cast<Unsigned>(old) + static_cast<Unsigned>(value));
  });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "atomics are on integers");
  return cuda_on_host::atomic(address, [value](T old) { return old < value ? value : old; });
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "atomics are on integers");
  return cuda_on_host::atomic(address, [value](T old) { return value < old ? value : old; });
}
template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "atomics are on integers");
  return cuda_on_host::atomic(address, [value](T old) { return static_cast<T>(old | value); });
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "atomics are on integers");
  return cuda_on_host::atomic(address, [value](T) { return value; });
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "atomics are on integers");
  return cuda_on_host::atomic(address, [=](T old) { return old == expected ? value : old; });
}
