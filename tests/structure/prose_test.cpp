// The rules of prose.h: each on a small text that breaks it, and all on this repository.
#include "structure/prose.h"
#include "support/catch.h"

namespace structure {
namespace {

using Texts = std::vector<std::string>;

Texts texts_of(const std::string& path, const std::string& text) {
  Texts texts;
  for (const Passage& passage : passages_of(file_from_text(path, text))) {
    texts.push_back(passage.text);
  }
  return texts;
}

std::vector<File> below(const std::vector<std::string>& folders, const std::string& ending) {
  std::vector<File> kept;
  for (File& file : read_tree(project_root(), {ending})) {
    for (const std::string& folder : folders) {
      if (file.path.starts_with(folder)) {
        kept.push_back(std::move(file));
        break;
      }
    }
  }
  return kept;
}

void append(std::vector<File>& files, std::vector<File> more) {
  files.insert(files.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

/// What a student reads while working: texts, hints, questions, and what a failing test reports.
std::vector<File> reading_matter() {
  std::vector<File> files = read_tree(project_root(), {".md"});
  REQUIRE(files.size() > 20);
  append(files, below({"apps/course/hints/", "apps/course/questions/"}, ".toml"));
  append(files, below({"tests/task", "tests/graded/", "common/"}, ".cpp"));
  return files;
}

/// The headers that the handouts and the book send a reader to.
std::vector<File> headers() {
  std::vector<File> files = below({"common/", "tasks/", "apps/paper/"}, ".h");
  REQUIRE(files.size() > 40);
  return files;
}

TEST_CASE("passages: paragraphs, items and cells, without code and pictures", "[structure]") {
  CHECK(texts_of("a.md",
                 "# Head\n\nOne\ntwo `a b`.\n- item\n  more\n- [next](b.md)\n\n"
                 "    picture\n\n```\ncode\n```\n| a | b c |\n|---|---|\n") ==
        Texts{"# Head", "One two `x`.", "- item more", "- [next]", "a", "b c", "---", "---"});
}

TEST_CASE("passages: the texts of hints, the comments of headers, the strings of tests",
          "[structure]") {
  CHECK(texts_of("a.toml", "[\"1.1\"]\none = \"\"\"\nOne\ntwo?\n\nThree.\"\"\"\nx = 1\n") ==
        Texts{"One two?", "Three."});
  CHECK(texts_of("a.h", "/// One\n/// two.\n///\n///    picture\nint a;  ///< three\nint b;\n") ==
        Texts{"One two.", "three"});
  CHECK(texts_of("a.cpp", "// no\nf(\"one \"\n  \"two\", \"three \\\" four\");\n") ==
        Texts{"one two", "three \\\" four"});
}

TEST_CASE("stiff phrases are found, and plain ones are not", "[structure]") {
  const auto verdict = [](const std::string& text) {
    return stiff_phrases({file_from_text("a.md", text)}).size();
  };
  for (const char* stiff : {
           "a line a step, and more",
           "It takes 4 bytes\nan element.",
           "Whoever reduces, waits.",
           "The buffer is given up.",
           "it has bytes",
           "The scheduler has heard of it.",
           "Two tensors, of which one is a view.",
           "It decays them, too.",
           "It waits for ever.",
           "At the most two.",
           "all, but for the last",
           "Were it so, …",
           "gives its parameters up",
           "units that are there",
           "not any more",
           "the prefetcher is told",
       }) {
    INFO(stiff);
    CHECK(verdict(stiff) == 1);
  }
  for (const char* plain :
       {"one line per step", "the bytes a rank holds", "It frees a unit, and a step follows.",
        "`Whoever`", "Which elements of which parameter?", "the gradients, too",
        "the unit as a rank"}) {
    INFO(plain);
    CHECK(verdict(plain) == 0);
  }
  CHECK(stiff_phrases({file_from_text("a.md", "x\n\nIt waits for ever.")}) ==
        Violations{"a.md:3: 'for ever': write 'forever'"});
}

TEST_CASE("long sentences are found", "[structure]") {
  const auto verdict = [](const std::string& text) {
    return long_sentences({file_from_text("a.md", text)}, 4).size();
  };
  CHECK(verdict("One two three four. One – two three four? (One two three four.)") == 0);
  CHECK(verdict("One two three\nfour five.") == 1);
  CHECK(verdict("- one two three four\n- one two three four") == 0);
}

TEST_CASE("no text is stiff where a plain word exists", "[structure]") {
  CHECK(stiff_phrases(reading_matter()) == Violations{});
  CHECK(stiff_phrases(headers()) == Violations{});
}

TEST_CASE("no sentence has more than 40 words", "[structure]") {
  CHECK(long_sentences(reading_matter(), 40) == Violations{});
}

}  // namespace
}  // namespace structure
