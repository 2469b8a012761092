// The table of an accelerator's kernels.
#include "tensor/device_kernels.h"
#include "support/catch.h"
#include "tensor/ops.h"

namespace fsdp {

TEST_CASE("an operation without a kernel on the accelerator is named") {
  const Tensor tables = Tensor::zeros({1, 1});
  CHECK_THROWS_WITH((accelerated<ops::rope_tables>(tables, tables, 1e4, RopeScaling{})),
                    contains("rope_tables has no kernel for CUDA: copy its operands"));
}

}  // namespace fsdp
