#include "device/cuda/driver_gate.h"

namespace fsdp::cuda {

std::shared_mutex& driver_gate() {
  static std::shared_mutex gate;
  return gate;
}

}  // namespace fsdp::cuda
