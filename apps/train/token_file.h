/// @file
/// @ingroup train
/// Files of tokens, in the two layouts that llm.c's scripts write:
///
///     256 int32    magic, version, number of tokens, and 253 that are not read
///     tokens       magic 20240520, version 1: uint16 (GPT-2)
///                  magic 20240801, version 7: uint32 (Llama 3)
///
/// apps/train/tokenize_text.py writes both, too. All numbers are little-endian.
#pragma once

#include "io/file_io.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace fsdp::train {

/// Tokens of a file, in its own width.
using Tokens = std::variant<std::vector<std::uint16_t>, std::vector<std::uint32_t>>;

/// Whether the file begins with one of the two magic numbers; a pipe does not, and loses no byte.
bool is_token_file(const io::File& file);

/// All tokens.
/// @throws InputError naming the file, the field of the header that is wrong, and the remedy.
Tokens read_token_file(const io::File& file);

/// A file of tokens alone, little-endian, as nanoGPT and llama2.c write it.
/// @param token_bytes 2 or 4
/// @throws InputError naming what it looks like and the way on if its size is no multiple of that,
/// if it begins like another kind of file, or if its numbers are plainly tokens of the other width
Tokens read_raw_tokens(const io::File& file, std::size_t token_bytes, std::int64_t vocabulary);

}  // namespace fsdp::train
