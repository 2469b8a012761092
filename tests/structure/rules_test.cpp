// Each rule on a small tree that breaks it: a check that cannot fail keeps nothing in order.
#include "structure/rules.h"
#include "support/catch.h"

namespace structure {
namespace {

/// One header a part, so that every include of the fixtures names an existing file.
std::vector<File> empty_house() {
  std::vector<File> files;
  for (const char* path :
       {"common/base/a.h", "common/device/a.h", "common/tensor/a.h", "common/autograd/a.h",
        "common/comm/a.h", "common/nn/a.h", "common/optim/a.h", "common/parallel/a.h",
        "tasks/task1_one/a.h", "tasks/task2_two/a.h", "tasks/task3_three/a.h", "apps/train/a.h",
        "apps/strategies/a.h", "tests/support/a.h"}) {
    files.push_back(file_from_text(path, ""));
  }
  return files;
}

/// What the floors say of a house with one more file.
Violations verdict(const std::string& path, const std::string& text) {
  std::vector<File> files = empty_house();
  files.push_back(file_from_text(path, text));
  return floor_violations(files);
}

TEST_CASE("floors: the allowed directions", "[structure]") {
  CHECK(verdict("common/tensor/b.cpp",
                "#include \"tensor/a.h\"\n#include \"base/a.h\"\n#include <vector>\n")
            .empty());
  CHECK(
      verdict("common/optim/b.cpp", "#include \"comm/a.h\"\n#include \"autograd/a.h\"\n").empty());
  CHECK(verdict("common/parallel/b.cpp", "#include \"nn/a.h\"\n#include \"optim/a.h\"\n").empty());
  CHECK(verdict("solutions/task2_two/b.cpp",
                "#include \"task2_two/a.h\"\n#include \"task1_one/a.h\"\n"
                "#include \"parallel/a.h\"\n")
            .empty());
  CHECK(verdict("apps/train/b.cpp",
                "#include \"a.h\"\n#include \"task3_three/a.h\"\n#include \"strategies/a.h\"\n")
            .empty());
  CHECK(verdict("tests/task1/b.cpp", "#include \"support/a.h\"\n#include \"base/a.h\"\n").empty());
}

TEST_CASE("floors: an include that goes up is named with its line", "[structure]") {
  CHECK(verdict("common/base/b.h", "#pragma once\n\n#include \"tensor/a.h\"\n") ==
        Violations{"common/base/b.h:3: base must not include tensor (common/tensor/a.h)"});
}

TEST_CASE("floors: every forbidden direction is refused", "[structure]") {
  struct Case {
    const char* path;
    const char* include;
  };
  const Case cases[] = {
      {"common/autograd/b.h", "\"comm/a.h\""},         // siblings on floor 3, both ways
      {"common/comm/b.h", "\"autograd/a.h\""},         //
      {"common/nn/b.h", "\"optim/a.h\""},              // siblings on floor 4, both ways
      {"common/optim/b.h", "\"nn/a.h\""},              //
      {"common/nn/b.h", "\"comm/a.h\""},               // modules know nothing of ranks
      {"common/optim/b.cpp", "\"parallel/a.h\""},      // up
      {"common/parallel/b.cpp", "\"task1_one/a.h\""},  // the library does not know the tasks
      {"tasks/task2_two/b.h", "\"task3_three/a.h\""},  // a task does not know a later one
      {"solutions/task1_one/b.cpp", "\"task2_two/a.h\""},
      {"tasks/task1_one/b.h", "\"train/a.h\""},  // no task includes an app
      {"common/nn/b.h", "\"train/a.h\""},        // nor does the library
      {"apps/strategies/b.h", "\"train/a.h\""},  // programs stand above what they share
      {"apps/paper/b.h", "\"strategies/a.h\""},  // a step on paper is no run of one
      {"apps/hall/b.h", "\"base/a.h\""},         // a room that is in no table
      {"apps/train/b.cpp", "\"support/a.h\""},   // nobody but tests includes tests
      {"common/base/b.h", "<device/a.h>"},       // angle brackets are no way around
      {"common/base/b.h", "\"../device/a.h\""},  // nor are dots
      {"common/base/b.h", "\"fmt/core.h\""},     // quotes are for our own files
      {"common/sound/b.h", "\"base/a.h\""},      // a folder that has no floor
      {"tasks/warm_up/b.h", "\"base/a.h\""},     // the warm-up needs no library
      {"solutions/race/b.cpp", "\"nn/a.h\""},    // nor a policy more than its lowest floor
  };
  for (const Case& c : cases) {
    INFO(c.path << " includes " << c.include);
    CHECK(verdict(c.path, std::string("#include ") + c.include + "\n").size() == 1);
    CHECK(verdict(c.path, std::string("  #  include ") + c.include + "\n").size() == 1);
  }
}

TEST_CASE("floors: a .cpp file is never included", "[structure]") {
  std::vector<File> files = empty_house();
  files.push_back(file_from_text("common/base/b.cpp", ""));
  files.push_back(file_from_text("tests/task1/c.cpp", "#include \"base/b.cpp\"\n"));
  CHECK(floor_violations(files) == Violations{"tests/task1/c.cpp:1: includes common/base/b.cpp"});
}

TEST_CASE("floors: paper reaches no engine, not even through others", "[structure]") {
  std::vector<File> files = empty_house();
  files.push_back(file_from_text("apps/paper/b.cpp", "#include \"nn/data.h\"\n"));
  files.push_back(file_from_text("common/nn/data.h", "#include \"base/a.h\"\n"));
  CHECK(floor_violations(files).empty());
  files.back() = file_from_text("common/nn/data.h", "#include \"tensor/way.h\"\n");
  files.push_back(file_from_text("common/tensor/way.h", "#include \"device/a.h\"\n"));
  CHECK(floor_violations(files) ==
        Violations{"common/tensor/way.h: by it, apps/paper reaches common/device/a.h"});
}

TEST_CASE("length and width", "[structure]") {
  const File three = file_from_text("common/base/a.cpp", "1\n2\n3\n");
  CHECK(long_files({three}, 3).empty());
  CHECK(long_files({three}, 2).size() == 1);
  CHECK(long_files({file_from_text("tests/task1/a.cpp", "1\n2\n3\n")}, 2).empty());

  const File arrows = file_from_text("common/base/a.h", "→→→\n1234\n");
  CHECK(wide_lines({arrows}, 4).empty());
  CHECK(wide_lines({arrows}, 3) == Violations{"common/base/a.h:2: too wide"});
}

TEST_CASE("conditional compilation", "[structure]") {
  CHECK(conditional_compilation({file_from_text("common/comm/a.cpp", "int a;\n#ifdef NCCL\n")}) ==
        Violations{"common/comm/a.cpp:2: #ifdef NCCL"});
  CHECK(conditional_compilation({file_from_text("apps/x/a.cpp", "  #if defined(MPI)\n")}).size() ==
        1);
  CHECK(conditional_compilation({file_from_text("tests/support/catch.h", "#if X\n")}).empty());
}

TEST_CASE("the heads of headers", "[structure]") {
  const File groups = file_from_text("docs/groups.dox",
                                     "/// @defgroup task3 Three\n/// @defgroup train Programs\n");
  const auto verdict = [&](const std::string& path, const std::string& text) {
    return header_heads({file_from_text(path, text)}, groups);
  };
  const std::string head = "/// @file\n/// @ingroup task3\n#pragma once\n";
  CHECK(verdict("tasks/task3_forward/a.h", head).empty());
  CHECK(verdict("apps/train/a.h", head) == Violations{"apps/train/a.h: no @ingroup train"});
  CHECK(verdict("apps/tr/a.h", "/// @file\n/// @ingroup tr\n#pragma once\n") ==
        Violations{"docs/groups.dox: no @defgroup tr"});
  CHECK(verdict("tests/support/a.h", "#pragma once\n").empty());
  CHECK(verdict("common/task3/a.h", "").size() == 3);
}

TEST_CASE("a header stands first in the source of its name", "[structure]") {
  const File header = file_from_text("tasks/task1_one/b.h", "");
  const auto verdict = [&](const std::string& path, const std::string& text) {
    return own_header_later({header, file_from_text(path, text)});
  };
  const std::string own = "#include \"task1_one/b.h\"\n";
  CHECK(
      verdict("solutions/task1_one/b.cpp", "// What it is.\n" + own + "#include <set>\n").empty());
  CHECK(verdict("solutions/task1_one/b.cpp", "#include <set>\n" + own) ==
        Violations{"solutions/task1_one/b.cpp: its first include must be task1_one/b.h"});
  CHECK(verdict("solutions/task1_one/b.cpp", "int x;\n").size() == 1);
  CHECK(verdict("solutions/task1_one/c.cpp", "#include <set>\n").empty());
}

TEST_CASE("names that ctest cannot run", "[structure]") {
  const std::string begin = std::string("TEST_") + "CASE(\"one";
  CHECK(bad_names({file_from_text("tests/a.cpp", begin + "; two\") {\n")}).size() == 1);
  CHECK(bad_names({file_from_text("tests/a.cpp", begin + "\") { f(); }\n")}).empty());
  const std::string option = std::string("TEST_") + "CASE(\"--eval\") {\n";
  CHECK(bad_names({file_from_text("tests/a.cpp", option)}).size() == 1);
}

TEST_CASE("unfinished work", "[structure]") {
  CHECK(unfinished({file_from_text("common/nn/a.cpp", "// TODO: later\n")}).size() == 1);
  CHECK(unfinished({file_from_text("tests/task1/a.cpp", "// FIXME\n")}).size() == 1);
  CHECK(unfinished({file_from_text("tests/task1/a.cpp", "mkdtemp(\"a-XXXXXX\");\n")}).empty());
  CHECK(unfinished({file_from_text("solutions/task1_one/a.cpp", "// TODO 1.1\n")}).empty());
}

TEST_CASE("texts that have drifted", "[structure]") {
  const File makefile = file_from_text("Makefile", "demo: ## x\n\techo\ntest-%: ## y\nA := b\n");
  const auto targets = [&](const std::string& text) {
    return unknown_make_targets({file_from_text("README.md", text)}, makefile);
  };
  CHECK(targets("Run `make demo`, then `make test-task3`; `make` alone helps.").empty());
  CHECK(targets("one\nRun `make coffee` now.") ==
        Violations{"README.md:2: make has no target coffee"});
  CHECK(targets("`make test-`").size() == 1);

  const auto paths = [&](const std::string& text) {
    return dead_paths({file_from_text("README.md", text)}, project_root());
  };
  CHECK(paths("See `tests/structure/`, [it](LICENSE), [web](https://x.y) and `tasks/task*/`")
            .empty());
  CHECK(paths("See `common/nowhere/`").size() == 1);
  CHECK(paths("See [the map](docs/nowhere.md#top)").size() == 1);
}

}  // namespace
}  // namespace structure
