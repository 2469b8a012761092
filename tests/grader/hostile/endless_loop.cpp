// Never ends.
namespace {
void attack() {
  for (volatile int i = 0;; i = 0) {
  }
}
}  // namespace
