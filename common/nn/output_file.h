/// @file
/// @ingroup nn
/// A file that is replaced as a whole, and only if it is ours.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace fsdp::nn {

/// What every single file that a program of ours writes (a summary, a page, a figure) says near its
/// beginning, in whatever its format has for such a thing.
inline constexpr std::string_view kFileMark = "made by unshard";

/// Checks that `file` is absent, empty, or a file with `mark` in its first 4 KiB, and changes
/// nothing. @throws InputError naming the file and the remedy.
void check_file_is_ours(const std::filesystem::path& file, std::string_view mark = kFileMark);
/// Tries whether `file` can be written, and leaves it as it was. Missing parents are created.
/// @throws InputError or Error naming the path and what is wrong.
void probe_file(const std::filesystem::path& file);
/// Writes `text`, which holds the mark, through a temporary, synced and renamed.
/// @throws InputError if the file, or its `.tmp`, is not ours.
void write_output_file(const std::filesystem::path& file, const std::string& text);

}  // namespace fsdp::nn
