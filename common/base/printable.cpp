#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace fsdp {
namespace {

struct Character {
  std::size_t nbytes;
  std::uint32_t code;
  bool is_utf8;
};

// The first character of a text that is not empty. A byte that begins none is one by itself.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t nbytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const Character none{1, lead, false};
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

bool is_shown(const Character& each) {
  const std::uint32_t code = each.code;
  const bool is_control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool directs = code == 0x61C || (code >= 0x200E && code <= 0x200F) ||
                       (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return each.is_utf8 && !is_control && !directs && code != 0xFEFF;
}

std::string escape_of(const Character& each) {
  if (each.code == '\n') return "\\n";
  if (each.code == '\t') return "\\t";
  const bool is_byte = each.code < 0x20 || !each.is_utf8;
  return is_byte ? fmt::format("\\x{:02x}", each.code) : fmt::format("\\u{:04x}", each.code);
}

std::string shown(std::string_view text, std::size_t most, std::string_view kept) {
  std::string line;
  line.reserve(std::min(text.size(), most));
  for (std::size_t count = 0; !text.empty(); ++count) {
    if (count == most) return line + "...";
    const Character each = first_of(text);
    const bool stays = is_shown(each) || kept.find(text[0]) != std::string_view::npos;
    line += stays ? std::string(text.substr(0, each.nbytes)) : escape_of(each);
    text.remove_prefix(each.nbytes);
  }
  return line;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) { return shown(text, most, ""); }

std::string printable_lines(std::string_view text, std::size_t most) {
  return shown(text, most, "\n\t");
}

}  // namespace fsdp
