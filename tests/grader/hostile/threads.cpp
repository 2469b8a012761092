// Works in a thread that nobody counts.
#include <thread>

namespace {
void attack() {
  std::thread([] {}).join();
}
}  // namespace
