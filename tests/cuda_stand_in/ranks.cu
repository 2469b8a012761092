#include "cuda_stand_in/ranks.h"

#include "cuda_stand_in/device_checks.h"

void check(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error(ncclGetErrorString(result));
}

Rank join(ncclUniqueId id, int ranks, int rank) {
  Rank me = {rank, ranks, nullptr, nullptr};
  check(cudaSetDevice(rank));
  check(cudaStreamCreateWithFlags(&me.stream, cudaStreamNonBlocking));
  check(ncclCommInitRank(&me.comm, ranks, id, rank));
  return me;
}

void leave(const Rank& me) {
  check(cudaStreamSynchronize(me.stream));
  check(ncclCommFinalize(me.comm));
  check(ncclCommDestroy(me.comm));
}

void all_gather(const Rank& me, float* whole, const float* part, std::size_t n) {
  check(ncclAllGather(part, whole, n, ncclFloat32, me.comm, me.stream));
}
void reduce_scatter(const Rank& me, float* part, const float* whole, std::size_t n) {
  check(ncclReduceScatter(whole, part, n, ncclFloat32, ncclSum, me.comm, me.stream));
}
void all_reduce(const Rank& me, float* values, std::size_t n) {
  check(ncclAllReduce(values, values, n, ncclFloat32, ncclSum, me.comm, me.stream));
}
void broadcast(const Rank& me, float* values, std::size_t n, int root) {
  check(ncclBroadcast(values, values, n, ncclFloat32, root, me.comm, me.stream));
}
void reduce(const Rank& me, float* sums, const float* values, std::size_t n, int root) {
  check(ncclReduce(values, me.rank == root ? sums : nullptr, n, ncclFloat32, ncclSum, root, me.comm,
                   me.stream));
}
