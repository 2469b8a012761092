#include "optim/reshard.h"

#include "base/check.h"

namespace fsdp {

void ReshardAfterForward::validate(int world_size) const {
  FSDP_CHECK(
      fits(world_size),
      "reshard_after_forward = {} does not fit {} ranks: use true, false, or a whole number s "
      "with 1 < s < {} that divides {}",
      ranks, world_size, world_size, world_size);
}

}  // namespace fsdp
