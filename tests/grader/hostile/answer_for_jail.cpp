// Looks for the socket over which the jail answers, among its own descriptors and those of its
// parent, and answers in the jail's place.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace {
void attack() {
  const std::string answer = "0 0";
  bool has_answered = false;
  for (int each = 0; each < 1024; ++each)
    has_answered |= send(each, answer.data(), answer.size(), MSG_NOSIGNAL) > 0;
  const long jail = syscall(SYS_pidfd_open, getppid(), 0);
  for (int each = 0; each < 64; ++each) {
    const auto stolen = static_cast<int>(syscall(SYS_pidfd_getfd, jail, each, 0));
    has_answered |= stolen >= 0 && write(stolen, answer.data(), answer.size()) > 0;
  }
  if (has_answered) throw std::runtime_error("HAS ANSWERED");
}
}  // namespace
