// Linked into every test program: there, fresh bytes are always NaN, so that a forgotten
// initialization fails the same way every time.
#include "device/allocator.h"

namespace fsdp {

bool fills_fresh_memory() { return true; }

}  // namespace fsdp
