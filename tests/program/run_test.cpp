// How a program ends, by what its body throws.
#include "base/todo.h"
#include "program/program.h"
#include "support/catch.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

namespace fsdp::program {
namespace {

/// Exit code, and what was written to the error stream.
std::pair<int, std::string> ended(const std::function<int()>& body) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int kept = ::dup(2);
  ::dup2(::fileno(file), 2);
  const int code = run("name", body);
  ::dup2(kept, 2);
  ::close(kept);
  std::rewind(file);
  std::array<char, 4096> text{};
  const std::size_t count = std::fread(text.data(), 1, text.size(), file);
  std::fclose(file);
  return {code, std::string(text.data(), count)};
}

int unwritten() { todo("3.4"); }

}  // namespace

TEST_CASE("a program that reaches an unwritten step names it, and how to test it") {
  const auto [code, said] = ended(unwritten);
  CHECK(code == kFailed);
  CHECK(said ==
        "name: step 3.4 is not written yet: unwritten (tests/program/run_test.cpp:33); make "
        "test-task3 ONLY=3.4 tests it\n");
}

TEST_CASE("an error is the program's name and a sentence") {
  const auto broken = ended([]() -> int { fail("broken"); });
  CHECK(broken == std::pair(kFailed, std::string("name: broken\n")));
  CHECK(ended([]() -> int { throw InputError("wrong"); }).first == kWrongInput);
  CHECK(ended([] { return 0; }) == std::pair(0, std::string()));
}

}  // namespace fsdp::program
