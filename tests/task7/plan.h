/// @file
/// Judge: the units a model ought to have, from the rules of the handout.
#pragma once

#include "task7/oracle.h"

namespace fsdp::graded {

struct WantedFlat {
  Names paths;
  bool trainable = true;
  bool decays = true;
  DType dtype = DType::float32;
  std::int64_t numel = 0;
};
struct WantedUnit {
  std::string name;
  bool kept = false;
  std::vector<WantedFlat> flats;
};
struct Plan {
  std::vector<WantedUnit> units;
  Names replicated;
  std::int64_t replicated_bytes = 0;
};
Plan plan_of(const Case& asked);
/// Keys of what is updated: "<unit>#<flat>" and the paths of what is replicated and trainable.
Names piece_keys(const Plan& plan, const Json& options);

/// What they take on each of `world_size` ranks.
struct PlanBytes {
  std::int64_t shards = 0;
  std::int64_t largest_unit = 0;
  std::int64_t replicated = 0;
};
PlanBytes bytes_of(const Plan& plan, int world_size);
std::int64_t padded(std::int64_t numel, int parts);

}  // namespace fsdp::graded
