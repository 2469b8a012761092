// Writes observations of its own to the judge, and leaves.
#include <unistd.h>

namespace {
void attack() {
  const unsigned char none[] = {1, 0, 0, 0, 0xA0};  // an empty CBOR map, with its length
  for (int descriptor = 3; descriptor < 64; ++descriptor) {
    if (write(descriptor, none, sizeof none) != sizeof none) continue;
  }
  _exit(0);
}
}  // namespace
