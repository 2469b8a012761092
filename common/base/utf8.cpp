#include "base/utf8.h"

namespace fsdp {

Utf8Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t nbytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const Utf8Character none{1, lead, false};
  if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || nbytes > text.size()) return none;
  std::uint32_t code = nbytes == 1 ? lead : lead & (0x7FU >> nbytes);
  for (std::size_t i = 1; i < nbytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return none;
    code = code << 6U | (byte(i) & 0x3FU);
  }
  // Longer than needed, half of a pair of UTF-16, or beyond Unicode.
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kLeast[nbytes] || is_surrogate || code > 0x10FFFF) return none;
  return {nbytes, code, true};
}

}  // namespace fsdp
