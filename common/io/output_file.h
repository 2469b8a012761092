/// @file
/// @ingroup io
/// A file that is replaced as a whole, and only if it is **ours** (its mark says so).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace fsdp::io {

/// The mark near the beginning of every single file that our programs write (a summary, a page, a
/// figure), in a form that fits the format.
inline constexpr std::string_view kFileMark = "made by unshard";

/// Checks that `file` is absent, empty, or has `mark` in its first 4 KiB. Changes nothing.
/// @throws InputError naming the file and the remedy.
void check_file_is_ours(const std::filesystem::path& file, std::string_view mark = kFileMark);
/// Checks that `file` can be written, without changing it. Creates missing parents.
/// @throws InputError or Error naming the path and what is wrong.
void probe_file(const std::filesystem::path& file);
/// Writes `text`, which contains the mark, through a temporary file, synced and renamed.
/// @throws InputError if the file, or its `.tmp`, is not ours.
void write_output_file(const std::filesystem::path& file, const std::string& text);

}  // namespace fsdp::io
