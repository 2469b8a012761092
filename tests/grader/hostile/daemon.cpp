// Leaves a process behind, in a session of its own, that outlives the case.
#include <unistd.h>

namespace {
void attack() {
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      for (;;) sleep(1000);
    }
    _exit(0);
  }
}
}  // namespace
