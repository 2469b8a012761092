// Collectives between processes, beside the MPI library's own, a textbook's ring and memcpy: in
// turns, in one run. Every turn of ours is a world of its own, because while one runs, the library
// is its engine's. Started by mpirun, with as many processes as ranks.
#include "base/check.h"
#include "bench/support/measure.h"
#include "comm/processes/job.h"
#include "comm/world.h"
#include "tensor/tensor.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace fsdp;

constexpr int kTurns = 9;
const Label kLabel{"bench", Phase::none};

/// All buffers hold `whole` values; a shard is its part of them.
struct Case {
  std::string name;
  std::function<void(ProcessGroup&, const Tensor& whole, const Tensor& shard)> ours;
  std::function<void(float* whole, float* shard, int shard_count)> theirs;
  std::function<void(float* whole, float* shard, int shard_count)> ring;
};

/// Sends to the next rank while receiving from the one before.
void pass_on(const float* out, float* in, int count) {
  const int size = processes::Job::instance().size();
  const int rank = processes::Job::instance().rank();
  MPI_Request requests[2];
  MPI_Irecv(in, count, MPI_FLOAT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(out, count, MPI_FLOAT, (rank + 1) % size, 0, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/// The piece that a rank sends in a round, if it begins with piece `first`.
float* piece(float* whole, int first, int round, int count) {
  const int size = processes::Job::instance().size();
  return whole + static_cast<std::ptrdiff_t>((first - round + 2 * size) % size) * count;
}

void ring_all_gather(float* whole, const float* shard, int count) {
  const int rank = processes::Job::instance().rank();
  std::copy_n(shard, count, piece(whole, rank, 0, count));
  for (int round = 0; round + 1 < processes::Job::instance().size(); ++round)
    pass_on(piece(whole, rank, round, count), piece(whole, rank, round + 1, count), count);
}

/// Piece p begins on rank p + 1, and every rank on its way to rank p adds its own.
void ring_reduce_scatter(float* whole, float* shard, int count) {
  const Tensor buffers[2] = {Tensor::empty({count}), Tensor::empty({count})};
  const int rank = processes::Job::instance().rank();
  const int rounds = processes::Job::instance().size() - 1;
  const float* sum = piece(whole, rank - 1, 0, count);
  for (int round = 0; round < rounds; ++round) {
    float* received = buffers[round % 2].data<float>();
    pass_on(sum, received, count);
    const float* own = piece(whole, rank - 1, round + 1, count);
    float* target = round + 1 == rounds ? shard : received;
    for (int i = 0; i < count; ++i) target[i] = received[i] + own[i];
    sum = target;
  }
}

void ring_all_reduce(float* whole, float* shard, int count) {
  ring_reduce_scatter(whole, shard, count);
  ring_all_gather(whole, shard, count);
}

/// A ring that gives wrong sums is no peer.
void check_ring() {
  const int size = processes::Job::instance().size();
  constexpr int kCount = 3;
  std::vector<float> whole;
  std::vector<float> shard(kCount);
  for (int i = 0; i < size * kCount; ++i)
    whole.push_back(static_cast<float>((processes::Job::instance().rank() + 1) * i));
  ring_all_reduce(whole.data(), shard.data(), kCount);
  for (int i = 0; i < size * kCount; ++i) {
    const auto expected = static_cast<float>(i * size * (size + 1) / 2);
    FSDP_CHECK(whole[static_cast<std::size_t>(i)] == expected,
               "the ring has summed element {} to {}", i, whole[static_cast<std::size_t>(i)]);
  }
}

std::vector<Case> cases() {
  return {{"all_gather",
           [](ProcessGroup& group, const Tensor& whole, const Tensor& shard) {
             group.all_gather(whole, shard, kLabel).wait();
           },
           [](float* whole, float* shard, int count) {
             MPI_Allgather(shard, count, MPI_FLOAT, whole, count, MPI_FLOAT, MPI_COMM_WORLD);
           },
           ring_all_gather},
          {"reduce_scatter",
           [](ProcessGroup& group, const Tensor& whole, const Tensor& shard) {
             group.reduce_scatter(shard, whole, ReduceOp::sum, kLabel).wait();
           },
           [](float* whole, float* shard, int count) {
             MPI_Reduce_scatter_block(whole, shard, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
           },
           ring_reduce_scatter},
          {"all_reduce",
           [](ProcessGroup& group, const Tensor& whole, const Tensor&) {
             group.all_reduce(whole, ReduceOp::sum, kLabel).wait();
           },
           [](float* whole, float*, int count) {
             MPI_Allreduce(MPI_IN_PLACE, whole, count * processes::Job::instance().size(),
                           MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
           },
           ring_all_reduce}};
}

double seconds_of(const std::function<void()>& body, int times) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) body();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  return wall.count() / times;
}

/// The time of one collective of ours, in a world of its own; its ranks compare their calls or not.
double measure_ours(const Case& item, std::int64_t numel, int times, bool is_checked) {
  double seconds = 0;
  setenv("FSDP_MPI_UNCHECKED", is_checked ? "0" : "1", 1);
  run_ranks(processes::Job::instance().size(), [&](ProcessGroup& group) {
    const Tensor whole = Tensor::zeros({numel});
    const Tensor shard = Tensor::zeros({numel / group.size()});
    const auto body = [&] { item.ours(group, whole, shard); };
    body();
    group.barrier(kLabel).wait();
    seconds = seconds_of(body, times);
  });
  return seconds;
}

double measure_mpi(const std::function<void(float*, float*, int)>& collective, const Tensor& whole,
                   int times) {
  const int count = static_cast<int>(whole.numel()) / processes::Job::instance().size();
  const Tensor shard = Tensor::zeros({count});
  const auto body = [&] { collective(whole.data<float>(), shard.data<float>(), count); };
  body();
  MPI_Barrier(MPI_COMM_WORLD);
  return seconds_of(body, times);
}

double measure_copy(const Tensor& whole, const Tensor& other, int times) {
  MPI_Barrier(MPI_COMM_WORLD);
  return seconds_of([&] { std::memcpy(other.raw(), whole.raw(), whole.nbytes()); }, times);
}

void compare(const Case& item, std::int64_t nbytes) {
  const int times = nbytes >= (16 << 20) ? 2 : nbytes >= (1 << 20) ? 20 : 100;
  const std::int64_t numel = nbytes / 4;
  const Tensor whole = Tensor::zeros({numel});
  const Tensor other = Tensor::zeros({numel});
  std::vector<double> ours;
  std::vector<double> unchecked;
  std::vector<double> theirs;
  std::vector<double> copy;
  std::vector<double> ring;
  std::vector<double> to_theirs;
  std::vector<double> to_ring;
  for (int turn = 0; turn < kTurns; ++turn) {
    ours.push_back(measure_ours(item, numel, times, true));
    unchecked.push_back(measure_ours(item, numel, times, false));
    theirs.push_back(measure_mpi(item.theirs, whole, times));
    ring.push_back(measure_mpi(item.ring, whole, times));
    copy.push_back(measure_copy(whole, other, times));
    to_theirs.push_back(ours.back() / theirs.back());
    to_ring.push_back(ours.back() / ring.back());
  }
  if (process_rank() != 0) return;
  fmt::print(
      "{:<15} {:>8.2f} MB  ours {:>8.3f} ms  unchecked {:>8.3f} ms  library {:>8.3f} ms  ring "
      "{:>8.3f} ms  memcpy {:>7.3f} ms  {:.2f}  {:.2f}\n",
      item.name, static_cast<double>(nbytes) / 1e6, bench::median(ours) * 1e3,
      bench::median(unchecked) * 1e3, bench::median(theirs) * 1e3, bench::median(ring) * 1e3,
      bench::median(copy) * 1e3, bench::median(to_theirs), bench::median(to_ring));
}

}  // namespace

int main() {
  const processes::Job& job = processes::Job::instance();
  if (job.rank() == 0) {
    fmt::print(
        "{}, {} processes; the last columns are our time over the library's and the ring's\n",
        job.library(), job.size());
  }
  if (job.size() > 1) check_ring();
  for (const Case& item : cases()) {
    for (const std::int64_t nbytes : {64 << 10, 1 << 20, 16 << 20, 64 << 20}) compare(item, nbytes);
  }
  return 0;
}
