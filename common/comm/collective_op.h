/// @file
/// @ingroup comm
/// CollectiveOp: the kinds of collectives, and what a rank receives for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fsdp {

enum class ReduceOp { sum, avg };
enum class CollectiveOp {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  reduce,
  barrier,
  split
};
std::string_view name_of(CollectiveOp op);
std::string_view name_of(ReduceOp op);

/// Bytes a rank receives for one collective over W ranks with bandwidth-optimal algorithms:
/// all_gather and reduce_scatter (W-1)·n, all_reduce 2(W-1)/W·N, broadcast and reduce N (on every
/// rank, the root included), barrier and split nothing. With W = 1 nothing moves.
std::int64_t received_bytes(CollectiveOp op, std::int64_t numel, std::size_t element_size,
                            int world_size);

}  // namespace fsdp
