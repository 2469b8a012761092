// How a program ends, by what its body throws.
#include "base/todo.h"
#include "program/program.h"
#include "support/catch.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
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
  std::array<char, 100'000> text{};
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
        "name: step 3.4 is not written yet: unwritten (tests/program/run_test.cpp:35); make "
        "test-task3 ONLY=3.4 tests it\n");
}

TEST_CASE("an error is the program's name and a sentence") {
  const auto broken = ended([]() -> int { fail("broken"); });
  CHECK(broken == std::pair(kFailed, std::string("name: broken\n")));
  CHECK(ended([]() -> int { throw InputError("wrong"); }).first == kWrongInput);
  CHECK(ended([] { return 0; }) == std::pair(0, std::string()));
}

TEST_CASE("an error holds what a user wrote, but prints nothing raw and nothing long") {
  const auto said = [](const std::string& what) {
    return ended([&]() -> int { throw InputError(what); }).second;
  };
  CHECK(said("a\x1b[2J\xff\nrank  seq") == "name: a\\x1b[2J\\xff\nrank  seq\n");
  CHECK_THAT(said(std::string(60'000, 'x')), contains("xxx...\n"));
}

TEST_CASE("a file that may not grow is an error, not a signal") {
  CHECK(ended([] { return std::raise(SIGXFSZ); }) == std::pair(0, std::string()));
}

TEST_CASE("a stack that is too small is an error, not a signal") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_STACK, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 512 << 10;
  REQUIRE(::setrlimit(RLIMIT_STACK, &small) == 0);
  const auto [code, said] = ended([] { return 0; });
  REQUIRE(::setrlimit(RLIMIT_STACK, &before) == 0);
  CHECK(code == kFailed);
  CHECK_THAT(said, contains("a stack may take only 512 KiB here") && contains("(ulimit -s 1024)"));
}

}  // namespace fsdp::program
