/// @file
/// How the texts read. The rules are few, and chosen so that they raise no false alarm; the
/// judgment of a reader comes on top.
#pragma once

#include "structure/rules.h"

#include <cstddef>
#include <string>
#include <vector>

namespace structure {

/// A stretch of running text, on one line: a paragraph, a list item, a cell of a table, a comment
/// or a string literal. Code in backticks is reduced to one word, and pictures are left out.
struct Passage {
  std::size_t line_index;  ///< where it begins
  std::string text;
};

/// The passages of a file by its ending: the paragraphs of .md, the texts between triple quotes of
/// .toml, the comments of .h, the string literals of .cpp.
std::vector<Passage> passages_of(const File& file);

/// "a line a step", "whoever", "given up": what a first reader stumbles over, with the remedy.
Violations stiff_phrases(const std::vector<File>& files);

/// No sentence has more than `limit` words.
Violations long_sentences(const std::vector<File>& files, std::size_t limit);

}  // namespace structure
