// Looks for the socket over which the jail answers, among all descriptors of itself and of whoever
// started it, and answers in its place. Says so if it can.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {
void attack() {
  const std::string answer = "0 0";
  bool has_answered = false;
  for (int each = 0; each < 1024; ++each)
    has_answered |= send(each, answer.data(), answer.size(), MSG_NOSIGNAL) > 0;
  for (int each = 0; each < 64; ++each) {
    const std::string path = "/proc/" + std::to_string(getppid()) + "/fd/" + std::to_string(each);
    const int stolen = open(path.c_str(), O_RDWR);
    has_answered |= stolen >= 0 && write(stolen, answer.data(), answer.size()) > 0;
  }
  if (has_answered) std::fputs("HAS ANSWERED\n", stderr);
}
}  // namespace
