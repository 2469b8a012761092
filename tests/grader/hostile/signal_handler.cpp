// Survives the end of its processor time, and a crash.
#include <csignal>

namespace {
void attack() {
  for (const int number : {SIGXCPU, SIGSEGV, SIGTERM, SIGABRT}) std::signal(number, SIG_IGN);
  for (volatile int i = 0;; i = 0) {
  }
}
}  // namespace
