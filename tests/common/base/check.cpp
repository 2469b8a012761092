#include "base/check.h"

#include "base/todo.h"
#include "support/catch.h"

using namespace fsdp;

TEST_CASE("a failed check throws a sentence with the values in it") {
  const int got = 3;
  CHECK_NOTHROW([&] { FSDP_CHECK(got == 3, "never"); }());
  CHECK(message_of<Error>([&] { FSDP_CHECK(got == 4, "wanted 4, got {}", got); }) ==
        "wanted 4, got 3");
}

TEST_CASE("the arguments of a check are evaluated on failure only") {
  int calls = 0;
  const auto expensive = [&] { return ++calls; };
  FSDP_CHECK(true, "{}", expensive());
  CHECK(calls == 0);
}

namespace {
void unsolved(int input) { todo("3.2", input); }
}  // namespace

TEST_CASE("an unsolved exercise names its step, its function and its hint, and is not an Error") {
  const std::string message = message_of<TodoError>([] { unsolved(1); });
  CHECK_THAT(message, contains("DO 3.2: unsolved ("));
  CHECK_THAT(message, contains("tests/common/base/check.cpp:23, "));
  CHECK_THAT(message, contains("writeup §3.2, make hint-3.2"));
  static_assert(!std::is_base_of_v<Error, TodoError>);
}

TEST_CASE("an unsolved exercise is a sentence for the user of a program") {
  try {
    unsolved(1);
  } catch (const TodoError& error) {
    CHECK(as_sentence(error) ==
          "step 3.2 is not written yet: unsolved (tests/common/base/check.cpp:23); make test-task3 "
          "ONLY=3.2 tests it");
  }
  CHECK(as_sentence(TodoError("else")) == "else");
}
