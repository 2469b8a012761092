// Prints gigabytes.
#include <cstdio>

namespace {
void attack() {
  for (;;) std::puts("a line that fills a pipe, then a disk, then the patience of everybody");
}
}  // namespace
