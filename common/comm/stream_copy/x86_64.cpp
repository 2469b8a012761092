#include "comm/stream_copy.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace fsdp {

void stream_copy(std::byte* out, const std::byte* in, std::size_t nbytes) {
  constexpr std::size_t kLine = 64;
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(out) % kLine;
  const std::size_t head = std::min(nbytes, misaligned == 0 ? 0 : kLine - misaligned);
  if (head > 0) std::memcpy(out, in, head);

  std::size_t at = head;
  for (; at + kLine <= nbytes; at += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(in + at);
    auto* to = reinterpret_cast<__m128i*>(out + at);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  if (at < nbytes) std::memcpy(out + at, in + at, nbytes - at);
  _mm_sfence();  // streamed stores are not ordered with the unlock that publishes them
}

}  // namespace fsdp
