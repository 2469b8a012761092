// Opens a connection.
#include <sys/socket.h>

namespace {
void attack() {
  if (socket(AF_INET, SOCK_STREAM, 0) < 0) throw 1;
}
}  // namespace
