#include "device/cuda/errors.h"

#include "base/check.h"

namespace fsdp::cuda {

void fail_call(const char* call, const char* answer) {
  fail("{} failed on the CUDA device: {}", call, answer);
}

}  // namespace fsdp::cuda
