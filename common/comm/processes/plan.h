/// @file
/// @ingroup comm
/// A collective as one rank's list of messages, sums and copies. No MPI here: only who sends what
/// to whom, in which order, and what is added to what.
#pragma once

#include "comm/process_group.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::processes {

struct Send {
  int peer;  ///< group rank
  const std::byte* from;
  std::int64_t nbytes;
};

struct Receive {
  int peer;
  std::byte* to;
  std::int64_t nbytes;
};

/// target = sum of this rank's values and of those that `peers` send, in the canonical order of
/// group ranks. The values of peers are received first, in the order of `peers`.
struct Sum {
  std::byte* target;
  const std::byte* own;
  int own_rank;
  std::vector<int> peers;
  std::int64_t numel;
  bool is_last = false;  ///< the sum is complete: an average is taken here
};

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::int64_t nbytes;
};

/// What may happen at the same time. The next round reads what this one writes.
///
/// Sends to one peer and what that peer receives are in the same order, in the same sizes. And all
/// ranks' orders fit together: there is one order of all messages of a round that each rank's lists
/// follow. So a rank may have only the first few of each list in flight, and nobody waits forever.
struct Round {
  std::vector<Copy> copies;
  std::vector<Send> sends;
  std::vector<Receive> receives;
  std::vector<Sum> sums;
};

using Plan = std::vector<Round>;

enum class Messages { added, moved };
/// The most bytes of one message, whose values are added to others, or only moved.
std::int64_t message_bytes(Messages messages, int world_size);

/// The most scratch of a plan, unless it is given another limit.
inline constexpr std::int64_t kMostScratch = std::int64_t{8} << 20;

/// Bytes of scratch that rank `rank` of `world_size` needs for a collective. Only reduce_scatter,
/// and reduce on a rank that is not the root, have no place for sums in their output: W/2 pieces,
/// if W is a power of two above 2. For another W, reduce has one piece there, and reduce_scatter
/// none.
///
/// If the pieces do not fit into `most_scratch`, the plan works through them in **slabs**: first as
/// many elements of every piece as fit, then as many of the next. A slab has at least one element
/// of each piece, even if these do not fit; with kMostScratch, that takes two million ranks.
std::int64_t scratch_bytes(const Collective& call, int rank, int world_size,
                           std::int64_t most_scratch = kMostScratch);

/// The plan of rank `rank` of `world_size` for `call`. `scratch` has scratch_bytes(), with the same
/// `most_scratch` for all ranks.
///
/// If W is a power of two, reduce_scatter halves recursively, nearest first: in round s, rank r
/// exchanges with r xor 2^s, and keeps the pieces whose bit s is its own. Neighbors are added
/// first, so this *is* the canonical tree. And if neighbors share a host, what leaves it is a sum
/// already. all_gather goes the same way back, farthest first. For other W, every rank sends every
/// other rank its piece. In all_gather a rank copies its own piece only after it has sent it, for
/// by then the peer's reading has brought it into a cache.
///
/// A rank receives what received_bytes() says; of broadcast and reduce that is the most. all_reduce
/// is reduce_scatter, then all_gather; broadcast begins with a scatter, and reduce ends with a
/// gather, slab by slab.
Plan make_plan(const Collective& call, int rank, int world_size, std::byte* scratch,
               std::int64_t most_scratch = kMostScratch);

}  // namespace fsdp::processes
