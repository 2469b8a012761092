/// @file
/// The project's own files as text, for the tests that keep its structure.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace structure {

struct File {
  std::string path;                ///< relative to the project's root, with '/'
  std::vector<std::string> lines;  ///< without line ends
};

/// Every file below `root` in one of the project's folders (and at the top) whose name ends with
/// one of `endings`, sorted by path.
std::vector<File> read_tree(const std::filesystem::path& root,
                            const std::vector<std::string>& endings);

/// A file made of `text`, for the fixtures.
File file_from_text(std::string path, const std::string& text);

/// The root of the project these tests were built from.
std::filesystem::path project_root();

/// "path:line", counting from one.
std::string at(const File& file, std::size_t line_index);

}  // namespace structure
