/// @file
/// CUDA's qualifiers. All threads of a block are fibers of one host thread, so what they share is
/// thread_local: `__shared__ float x[32];` in a kernel is static, and
/// `extern __shared__ unsigned char dynamic_shared_memory[];` names the array of the launch. The
/// stand-in defines an array of that name only, in the global namespace; declare it there.
/// The alignment leaves a gap behind most arrays, so that an overrun does not reach the next one.
#pragma once

#define __global__
#define __device__
#define __host__
#define __shared__ thread_local __attribute__((aligned(1024)))
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/// For functions whose loads and stores are the stand-in's own, and not the kernel's.
#define CUDA_ON_HOST_UNTRACED __attribute__((no_sanitize("thread")))
