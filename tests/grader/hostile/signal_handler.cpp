// Survives the end of its processor time, and a crash.
#include <csignal>

namespace {
constexpr int kNumbers[] = {SIGXCPU, SIGSEGV, SIGTERM, SIGABRT};

void attack() {
  for (const int number : kNumbers) std::signal(number, SIG_IGN);
  for (volatile int i = 0;; i = 0) {
  }
}
}  // namespace
