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

std::vector<std::string> todos_reached() {
  const std::lock_guard lock(reached().mutex);
  return reached().todos;
}

}  // namespace fsdp
