// The rules, applied to this repository.
#include "structure/rules.h"
#include "support/catch.h"

namespace structure {
namespace {

std::vector<File> sources() {
  std::vector<File> files = read_tree(project_root(), {".h", ".cpp", ".cu"});
  REQUIRE(files.size() > 50);  // an empty tree keeps every rule
  return files;
}

std::vector<File> texts() {
  std::vector<File> files = read_tree(project_root(), {".md"});
  REQUIRE_FALSE(files.empty());
  return files;
}

TEST_CASE("every include goes to its own folder or a lower floor", "[structure]") {
  CHECK(floor_violations(sources()) == Violations{});
}

TEST_CASE("no source is longer than 400 lines", "[structure]") {
  CHECK(long_files(sources(), 400) == Violations{});
}

TEST_CASE("no line is wider than 100 characters", "[structure]") {
  CHECK(wide_lines(sources(), 100) == Violations{});
}

TEST_CASE("no conditional compilation but where it is sanctioned", "[structure]") {
  CHECK(conditional_compilation(sources()) == Violations{});
}

TEST_CASE("every header names its file and its group", "[structure]") {
  const std::vector<File> groups = read_tree(project_root(), {"groups.dox"});
  REQUIRE(groups.size() == 1);
  CHECK(header_heads(sources(), groups.front()) == Violations{});
}

TEST_CASE("every source includes the header of its name first", "[structure]") {
  CHECK(own_header_later(sources()) == Violations{});
}

TEST_CASE("ctest can run every test by its name", "[structure]") {
  CHECK(bad_names(sources()) == Violations{});
}

TEST_CASE("nothing is left unfinished", "[structure]") {
  CHECK(unfinished(sources()) == Violations{});
}

TEST_CASE("the texts name targets and files that exist", "[structure]") {
  const std::vector<File> makefiles = read_tree(project_root(), {"Makefile"});
  REQUIRE(makefiles.size() == 1);
  CHECK(unknown_make_targets(texts(), makefiles.front()) == Violations{});
  CHECK(dead_paths(texts(), project_root()) == Violations{});
}

}  // namespace
}  // namespace structure
