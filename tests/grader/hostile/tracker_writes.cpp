// Tells the tracker that memory is gone which is not.
#include "device/context.h"

namespace {
void attack() { fsdp::Context::current().tracker().set_logging(false); }
}  // namespace
