// Waits for what never comes, outside of all collectives.
#include <mutex>

namespace {
void attack() {
  std::mutex mutex;
  mutex.lock();
  mutex.lock();
}
}  // namespace
