/// @file
/// @ingroup base
/// Text that others wrote (files, command lines), where it is shown to a person.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fsdp {

/// `text` on one line, for a message or a page: control characters, the characters that reverse
/// the direction of a line, and bytes that are no UTF-8 are written as escapes (`\n`, `\x1b`,
/// `\u202e`). What is longer than `most` characters ends there, with "...".
std::string printable(std::string_view text, std::size_t most = 200);

/// The same for text of several lines: newlines and tabs stay.
std::string printable_lines(std::string_view text, std::size_t most = std::string_view::npos);

}  // namespace fsdp
