// Leaves something behind that runs when the case is over.
#include <unistd.h>

#include <cstdlib>

namespace {
void attack() {
  std::atexit([] { _exit(0); });
}
}  // namespace
