// Reaches an unsolved step and hides it.
#include "base/todo.h"

namespace {
void attack() {
  try {
    fsdp::todo("3.2");
  } catch (...) {
  }
}
}  // namespace
