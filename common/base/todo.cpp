#include "base/todo.h"

#include <mutex>

namespace fsdp {
namespace {

struct Reached {
  std::mutex mutex;
  std::vector<std::string> todos;
};

Reached& reached() {
  static Reached list;
  return list;
}

}  // namespace

TodoError::TodoError(const std::string& what) : std::logic_error(what) {
  const std::lock_guard lock(reached().mutex);
  reached().todos.push_back(what);
}

std::string as_sentence(const TodoError& error) {
  // As todo() writes it: a mark, the step, ": function (file:line, writeup …".
  const std::string_view what = error.what();
  const auto mark = what.find(' '), colon = what.find(": "), end = what.find(", writeup");
  if (mark > colon || colon == std::string_view::npos || end == std::string_view::npos)
    return std::string(what);
  const std::string_view step = what.substr(mark + 1, colon - mark - 1);
  return fmt::format("step {0} is not written yet: {1}); make test-task{2} ONLY={0} tests it", step,
                     what.substr(colon + 2, end - colon - 2), step.substr(0, 1));
}

std::vector<std::string> todos_reached() {
  const std::lock_guard lock(reached().mutex);
  return reached().todos;
}

}  // namespace fsdp
