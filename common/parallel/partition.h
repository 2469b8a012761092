/// @file
/// @ingroup parallel
/// Which rank owns which elements of a list of parameters (ZeRO-1 and ZeRO-2).
#pragma once

#include "base/types.h"
#include "optim/reduction.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::parallel {

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
std::vector<OwnedSlice> divide(optim::Partition how, const std::vector<std::int64_t>& numels,
                               int world_size);

/// The elements that each rank owns, by rank.
std::vector<std::int64_t> loads_of(const std::vector<OwnedSlice>& slices, int world_size);

/// Slices that travel together: neighbors of one owner and one dtype, up to `most_bytes` (0, or a
/// slice larger than that: by itself). `dtypes`: of each parameter, in which it travels. Last
/// parameters first, both the groups and the slices of a group: a group comes before another one if
/// a backward that goes through the parameters from the last to the first completes it earlier.
std::vector<std::vector<OwnedSlice>> travel_groups(const std::vector<OwnedSlice>& slices,
                                                   const std::vector<DType>& dtypes,
                                                   std::size_t most_bytes);

}  // namespace fsdp::parallel
