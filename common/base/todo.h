/// @file
/// @ingroup base
/// An unfinished exercise throws an exception that names it.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// An exercise that is not solved yet. Deliberately not an Error: code that handles the library's
/// errors must not mistake "unsolved" for "failed as expected".
class TodoError : public std::logic_error {
 public:
  explicit TodoError(const std::string& what);
};

/// For the user of a program that reached it: which step is not written yet, and how to test it.
std::string as_sentence(const TodoError& error);

/// The messages of all TodoErrors made in this process so far, in order, thrown or not: no catch
/// may hide an exercise that was reached. One list for the whole process, since ranks and their
/// communication may run on any thread.
std::vector<std::string> todos_reached();

/// The step number of an exercise, and its place in the code.
struct TodoStep {
  std::string_view step;
  std::string_view function;
  std::string_view file;
  int line;
  // Implicit on purpose: todo("2.1", …) must pick up the caller's place. Built-ins of both
  // compilers, because clang 14 has no std::source_location.
  TodoStep(const char* number, const char* in_function = __builtin_FUNCTION(),
           const char* in_file = __builtin_FILE(), int at_line = __builtin_LINE())
      : step(number), function(in_function), file(in_file), line(at_line) {}
};

/// A placeholder for the student's code. Its arguments document what the step reads and sets, and
/// avoid "unused" warnings.
template <class... Names>
[[noreturn]] void todo(TodoStep todo_step, const Names&...) {
  throw TodoError(fmt::format("TODO {0}: {1} ({2}:{3}, writeup §{0}, make hint-{0})",
                              todo_step.step, todo_step.function, todo_step.file, todo_step.line));
}

}  // namespace fsdp
