// By itself, so that a program may bring its own: those that are linked with CUDA do.
#include "device/accelerator.h"

namespace fsdp {

Accelerator* accelerator() { return nullptr; }

}  // namespace fsdp
