// Calls itself for ever.
namespace {
int deeper(volatile int* depth) {
  volatile int here = *depth + 1;
  return deeper(&here) + here;
}
void attack() {
  volatile int depth = 0;
  if (deeper(&depth) == 1) throw 1;
}
}  // namespace
