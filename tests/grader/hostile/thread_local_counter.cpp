// Remembers from case to case how often it was called.
namespace {
thread_local int calls = 0;
void attack() {
  if (++calls > 1) throw calls;
}
}  // namespace
