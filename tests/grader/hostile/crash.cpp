// Reads where nothing is.
namespace {
void attack() {
  int* volatile nowhere = nullptr;
  *nowhere = 1;
}
}  // namespace
