/// @file
/// @ingroup base
/// What an unfinished exercise does: it says which one it is.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// An exercise that has not been solved yet. Deliberately not an Error: code that handles the
/// library's errors must not be able to mistake "unsolved" for "failed as it should".
class TodoError : public std::logic_error {
 public:
  explicit TodoError(const std::string& what);
};

/// What the TodoErrors made so far by this process said, in order, thrown or not, caught or not: an
/// exercise that was reached must not be able to hide behind a catch. The one list of the whole
/// process, since ranks and their communication may run on any thread.
std::vector<std::string> todos_reached();

/// The step number of an exercise together with the place it was written at.
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

/// Stands where the student's code goes. Naming the inputs and outputs documents what the step
/// reads and sets, and keeps "unused" warnings quiet.
template <class... Names>
[[noreturn]] void todo(TodoStep todo_step, const Names&...) {
  throw TodoError(fmt::format("TODO {0}: {1} ({2}:{3}, writeup §{0}, make hint-{0})",
                              todo_step.step, todo_step.function, todo_step.file, todo_step.line));
}

}  // namespace fsdp
