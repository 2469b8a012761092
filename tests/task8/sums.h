/// @file
/// Judge: the sums that task 8's cases of single calls ought to make.
#pragma once

#include "task8/shards.h"
#include "tensor/tree_sum.h"

#include <cstddef>
#include <vector>

namespace fsdp::graded {

using Floats = std::vector<float>;

/// The sum of `leaves` in the canonical order.
inline Floats tree(const std::vector<Floats>& leaves) {
  Floats sum(leaves.front().size());
  std::vector<const std::byte*> in;
  for (const Floats& each : leaves) in.push_back(reinterpret_cast<const std::byte*>(each.data()));
  tree_sum(reinterpret_cast<std::byte*>(sum.data()), in, std::ssize(sum), DType::float32);
  return sum;
}

/// The shard of call number `call`: summed over all ranks, which are each other's replicas.
inline Floats sum_over_replicas(const Case& asked, int flat, int call) {
  std::vector<Floats> shards;
  for (int rank = 0; rank < asked.world_size; ++rank) {
    shards.push_back(shard_of(asked, flat, rank, call).to_vector<float>());
  }
  return tree(shards);
}

}  // namespace fsdp::graded
