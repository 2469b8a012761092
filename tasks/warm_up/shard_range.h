/// @file
/// @ingroup warm_up
/// The warm-up: which elements of a vector each rank keeps.
#pragma once

#include <cstdint>

namespace fsdp {

/// The elements [begin, end) of a vector.
struct ShardRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A vector of N elements is cut into W pieces of n = ceil(N / W) elements, one for each rank. If W
/// does not divide N, the pieces reach beyond the vector; what lies there is padding.
///
///     N = 10, W = 4, n = 3          rank  0  [0, 3)
///                                         1  [3, 6)
///     0 1 2 | 3 4 5 | 6 7 8 | 9 - -       2  [6, 9)
///     `-0-'   `-1-'   `-2-'   `-3-'       3  [9, 10)
///
/// @return the elements of `rank`'s piece that are in the vector; [N, N) if it is all padding.
/// `numel` is N (0 or more), `world_size` is W (1 or more), `rank` is from 0 to W − 1.
ShardRange shard_range(std::int64_t numel, int world_size, int rank);

/// What `shard_range` throws until you have written it: it was called with these.
struct NotWritten {
  std::int64_t numel = 0;
  int world_size = 0;
  int rank = 0;
};

}  // namespace fsdp
