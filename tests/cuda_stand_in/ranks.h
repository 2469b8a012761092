/// @file
/// A rank of NCCL with a stream of its own, in a file that compiles for a card as well.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstddef>

/// Throws if a call of NCCL returned an error.
void check(ncclResult_t result);

struct Rank {
  int rank, ranks;
  ncclComm_t comm;
  cudaStream_t stream;
};

/// On device `rank`. Returns when all ranks have joined.
Rank join(ncclUniqueId id, int ranks, int rank);
/// Waits for the stream, and leaves.
void leave(const Rank& me);

void all_gather(const Rank& me, float* whole, const float* part, std::size_t n);
void reduce_scatter(const Rank& me, float* part, const float* whole, std::size_t n);
void all_reduce(const Rank& me, float* values, std::size_t n);
void broadcast(const Rank& me, float* values, std::size_t n, int root);
/// To another place than the root's own values.
void reduce(const Rank& me, float* sums, const float* values, std::size_t n, int root);
