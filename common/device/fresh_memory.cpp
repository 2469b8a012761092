// By itself, so that a program may bring its own: the tests do (tests/support/fresh_memory.cpp),
// and so fill fresh bytes with NaN around the very objects that the demo and the benchmarks run.
#include "device/allocator.h"

namespace fsdp {

bool fills_fresh_memory() { return false; }

}  // namespace fsdp
