/// @file
/// @ingroup parallel
/// Which rank owns which elements of a list of parameters (ZeRO-1 and ZeRO-2).
#pragma once

#include "base/types.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::parallel {

/// How parameters are divided among W ranks, for sizes 1, 1, 1, 1, 4 and W = 2:
///
///     greedy   0 1 0 1 | 0 0 0 0    each parameter whole, in the order of registration, to the
///                                   rank with the smallest load so far (FairScale's OSS); of
///                                   several such ranks, the lowest. Here the loads are 6 and 2.
///     flat     0 0 0 0 | 1 1 1 1    one cut through all parameters as if they were one vector
///                                   (DeepSpeed). Each rank has N / W elements, and the first
///                                   N mod W ranks have one more. A parameter may have several
///                                   owners.
///     round_robin
///               0 1 0 1 | 0 0 1 1   the same cut after a reorder (DeepSpeed's
///                                   round_robin_gradients): parameters 0, W, 2W, … come first,
///                                   then 1, W + 1, … So the cut goes through 0 2 4 1 3, and here
///                                   the last parameter straddles it. Backward completes the
///                                   gradients of several owners in turn, and not all those of
///                                   the last rank first.
enum class Partition { greedy, flat, round_robin };

/// Consecutive elements of one parameter that one rank owns.
struct OwnedSlice {
  std::size_t parameter = 0;  ///< index into the list
  std::int64_t begin = 0;     ///< first element of the flattened parameter
  std::int64_t numel = 0;
  int owner = 0;
  friend bool operator==(const OwnedSlice&, const OwnedSlice&) = default;
};

/// Divides parameters of these sizes among `world_size` ranks. The slices are in the order of the
/// parameters and cover each one once. A rank owns at most one slice of a parameter.
std::vector<OwnedSlice> divide(Partition how, const std::vector<std::int64_t>& numels,
                               int world_size);

/// The elements that `rank` owns.
std::int64_t load_of(const std::vector<OwnedSlice>& slices, int rank);

/// Slices that travel together: neighbors of one owner and one dtype, up to `most_bytes` (0, or a
/// slice larger than that: by itself). `dtypes`: of each parameter, in which it travels. Last
/// parameters first, both the groups and the slices of a group: a group comes before another one if
/// a backward that goes through the parameters from the last to the first completes it earlier.
std::vector<std::vector<OwnedSlice>> travel_groups(const std::vector<OwnedSlice>& slices,
                                                   const std::vector<DType>& dtypes,
                                                   std::size_t most_bytes);

}  // namespace fsdp::parallel
