/// @file
/// @ingroup base
/// Characters in UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fsdp {

/// A character of a text, or a byte that is no part of one.
struct Utf8Character {
  std::size_t nbytes;
  std::uint32_t code;  ///< Unicode's, or the byte
  bool is_utf8;
};

/// The first character of a text that is not empty. A byte that begins none is one by itself.
Utf8Character first_character(std::string_view text);

}  // namespace fsdp
