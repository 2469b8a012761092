#include "optim/reshard.h"

#include "base/check.h"

namespace fsdp {

void ReshardAfterForward::validate(int world_size) const {
  if (kind != Kind::within) return;
  FSDP_CHECK(
      ranks > 1 && ranks < world_size && world_size % ranks == 0,
      "reshard_after_forward = {} does not fit {} ranks: use true, false, or a whole number s "
      "with 1 < s < {} that divides {}",
      ranks, world_size, world_size, world_size);
}

}  // namespace fsdp
