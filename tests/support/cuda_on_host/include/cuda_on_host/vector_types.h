/// @file
/// float4 and its relatives. A card loads such a vector in one instruction and faults if its
/// address is no multiple of its size; here, a copy from or to such an address is a Misuse.
#pragma once

#include <cstddef>

namespace cuda_on_host {
/// Fails if `address` is no multiple of `alignment`. Not inline: a compiler that sees the type of
/// the pointer may assume that the answer is yes.
void check_alignment(const void* address, std::size_t alignment);
}  // namespace cuda_on_host

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
      : x(width), y(height), z(depth) {}
};

#define CUDA_ON_HOST_VECTOR2(Name, Element)                      \
  struct __attribute__((aligned(2 * sizeof(Element)))) Name {    \
    Element x, y;                                                \
    Name() = default;                                            \
    Name(Element first, Element second) : x(first), y(second) {} \
    Name(const Name& other) { *this = other; }                   \
    Name& operator=(const Name& other) {                         \
      cuda_on_host::check_alignment(&other, sizeof(Name));       \
      cuda_on_host::check_alignment(this, sizeof(Name));         \
      x = other.x;                                               \
      y = other.y;                                               \
      return *this;                                              \
    }                                                            \
  };                                                             \
  inline Name make_##Name(Element x, Element y) { return Name(x, y); }

#define CUDA_ON_HOST_VECTOR4(Name, Element)                            \
  struct __attribute__((aligned(4 * sizeof(Element)))) Name {          \
    Element x, y, z, w;                                                \
    Name() = default;                                                  \
    Name(Element first, Element second, Element third, Element fourth) \
        : x(first), y(second), z(third), w(fourth) {}                  \
    Name(const Name& other) { *this = other; }                         \
    Name& operator=(const Name& other) {                               \
      cuda_on_host::check_alignment(&other, sizeof(Name));             \
      cuda_on_host::check_alignment(this, sizeof(Name));               \
      x = other.x;                                                     \
      y = other.y;                                                     \
      z = other.z;                                                     \
      w = other.w;                                                     \
      return *this;                                                    \
    }                                                                  \
  };                                                                   \
  inline Name make_##Name(Element x, Element y, Element z, Element w) { return Name(x, y, z, w); }

CUDA_ON_HOST_VECTOR2(float2, float)
CUDA_ON_HOST_VECTOR2(double2, double)
CUDA_ON_HOST_VECTOR2(int2, int)
CUDA_ON_HOST_VECTOR2(uint2, unsigned)
CUDA_ON_HOST_VECTOR4(float4, float)
CUDA_ON_HOST_VECTOR4(int4, int)
CUDA_ON_HOST_VECTOR4(uint4, unsigned)

#undef CUDA_ON_HOST_VECTOR2
#undef CUDA_ON_HOST_VECTOR4
