// Writes where nothing is.
namespace {
void attack() {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}
}  // namespace
