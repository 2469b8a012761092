// std::atomic, and what uses it (shared_ptr, static variables), in host code that is compiled
// together with kernels. The compiler replaces each operation by a call; here it is done as it was
// meant. Kernels use CUDA's atomics, which the stand-in has of its own.
#include <cstdint>

extern "C" {
#define CUDA_ON_HOST_ATOMIC(bits, Value)                                                           \
  Value __tsan_atomic##bits##_load(const volatile Value* p, int) {                                 \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile Value* p, Value value, int) {                          \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  Value __tsan_atomic##bits##_exchange(volatile Value* p, Value value, int) {                      \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                                \
  Value __tsan_atomic##bits##_fetch_add(volatile Value* p, Value value, int) {                     \
    return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);                                         \
  }                                                                                                \
  Value __tsan_atomic##bits##_fetch_sub(volatile Value* p, Value value, int) {                     \
    return __atomic_fetch_sub(p, value, __ATOMIC_SEQ_CST);                                         \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile Value* p, Value* expected,            \
                                                    Value value, int, int) {                       \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,                \
                                       __ATOMIC_SEQ_CST);                                          \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile Value* p, Value* expected, Value value, \
                                                  int, int) {                                      \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST,                \
                                       __ATOMIC_SEQ_CST);                                          \
  }
CUDA_ON_HOST_ATOMIC(8, std::uint8_t)
CUDA_ON_HOST_ATOMIC(16, std::uint16_t)
CUDA_ON_HOST_ATOMIC(32, std::uint32_t)
CUDA_ON_HOST_ATOMIC(64, std::uint64_t)
#undef CUDA_ON_HOST_ATOMIC
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
}
