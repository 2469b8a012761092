#include "base/printable.h"

#include "base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace fsdp {
namespace {

bool is_shown(const Utf8Character& each) {
  const std::uint32_t code = each.code;
  const bool is_control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool directs = code == 0x61C || (code >= 0x200E && code <= 0x200F) ||
                       (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return each.is_utf8 && !is_control && !directs && code != 0xFEFF;
}

std::string escape_of(const Utf8Character& each) {
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
    const Utf8Character each = first_character(text);
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
