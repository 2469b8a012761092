/// @file
/// @ingroup paper
/// ZeroHabits: what a DeepSpeed configuration says of memory, beside what a recipe says.
#pragma once

#include <cstdint>
#include <limits>

namespace fsdp::paper {

/// Keys of `zero_optimization` and their defaults, in elements.
struct ZeroHabits {
  std::int64_t reduce_bucket = 500'000'000;      ///< reduce_bucket_size
  std::int64_t prefetch_bucket = 50'000'000;     ///< stage3_prefetch_bucket_size
  std::int64_t persistence_threshold = 100'000;  ///< stage3_param_persistence_threshold
  std::int64_t persistent_limit =
      std::numeric_limits<std::int64_t>::max();  ///< stage3_model_persistence_threshold
  std::int64_t live_limit = 1'000'000'000;       ///< stage3_max_live_parameters
  std::int64_t reuse_distance = 1'000'000'000;   ///< stage3_max_reuse_distance
  std::int64_t sub_group = 1'000'000'000;        ///< sub_group_size
  bool gathers_apart = false;                    ///< stage3_allgather_sequential
  bool overlaps = false;                         ///< overlap_comm, of stages 1 and 2
  /// Stage 3: what is offloaded (Recipe::sharding.offload) is the optimizer with its masters, and
  /// not the parameters that are gathered.
  bool keeps_shards = false;
};

}  // namespace fsdp::paper
