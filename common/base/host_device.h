/// @file
/// @ingroup base
/// For functions that a CUDA kernel computes too, so that both give the same bits.
#pragma once

// nvcc compiles such a function twice: for the processor and for the card.
#ifdef __CUDACC__
#define FSDP_HOST_DEVICE __host__ __device__
#define FSDP_DEVICE __device__  // only for the card
#else
#define FSDP_HOST_DEVICE
#define FSDP_DEVICE
#endif

namespace fsdp {

/// std::bit_cast, which a kernel cannot call.
template <class To, class From>
FSDP_HOST_DEVICE constexpr To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

}  // namespace fsdp
