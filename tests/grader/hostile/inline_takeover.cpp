// Defines a function of the standard library as an inline one of its own.
#include <chrono>

[[gnu::noinline]] inline std::chrono::steady_clock::time_point
std::chrono::_V2::steady_clock::now() noexcept {
  return {};
}

namespace {
void attack() {
  if (std::chrono::steady_clock::now().time_since_epoch().count() != 0) throw 1;
}
}  // namespace
