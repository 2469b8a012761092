/// @file
/// reshard_after_forward as one number, for options of scenarios and tables of cases.
#pragma once

#include "optim/reshard.h"

namespace fsdp::testing {

/// 0: always; 1: never; s > 1: within s ranks.
inline ReshardAfterForward reshard_of(int number) {
  if (number == 0) return ReshardAfterForward::always();
  return number == 1 ? ReshardAfterForward::never() : ReshardAfterForward::within(number);
}
inline int number_of(const ReshardAfterForward& reshard) {
  return reshard.kind == ReshardAfterForward::Kind::never ? 1 : reshard.ranks;
}

}  // namespace fsdp::testing
