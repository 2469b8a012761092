// Collectives between processes, beside the MPI library's own and beside memcpy: in turns, in one
// run. Every turn of ours is a world of its own, because while one runs, the library is its
// engine's. Started by mpirun, with as many processes as ranks.
#include "bench/support/measure.h"
#include "comm/mpi/job.h"
#include "comm/world.h"
#include "tensor/tensor.h"

#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
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
};

std::vector<Case> cases() {
  return {{"all_gather",
           [](ProcessGroup& group, const Tensor& whole, const Tensor& shard) {
             group.all_gather(whole, shard, kLabel).wait();
           },
           [](float* whole, float* shard, int count) {
             MPI_Allgather(shard, count, MPI_FLOAT, whole, count, MPI_FLOAT, MPI_COMM_WORLD);
           }},
          {"reduce_scatter",
           [](ProcessGroup& group, const Tensor& whole, const Tensor& shard) {
             group.reduce_scatter(shard, whole, ReduceOp::sum, kLabel).wait();
           },
           [](float* whole, float* shard, int count) {
             MPI_Reduce_scatter_block(whole, shard, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
           }},
          {"all_reduce",
           [](ProcessGroup& group, const Tensor& whole, const Tensor&) {
             group.all_reduce(whole, ReduceOp::sum, kLabel).wait();
           },
           [](float* whole, float*, int count) {
             MPI_Allreduce(MPI_IN_PLACE, whole, count * mpi::Job::instance().size(), MPI_FLOAT,
                           MPI_SUM, MPI_COMM_WORLD);
           }}};
}

double seconds_of(const std::function<void()>& body, int times) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) body();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  return wall.count() / times;
}

/// The time of one collective of ours, in a world of its own.
double measure_ours(const Case& item, std::int64_t numel, int times) {
  double seconds = 0;
  run_ranks(mpi::Job::instance().size(), [&](ProcessGroup& group) {
    const Tensor whole = Tensor::zeros({numel});
    const Tensor shard = Tensor::zeros({numel / group.size()});
    const auto body = [&] { item.ours(group, whole, shard); };
    body();
    group.barrier(kLabel).wait();
    seconds = seconds_of(body, times);
  });
  return seconds;
}

double measure_theirs(const Case& item, std::vector<float>& whole, int times) {
  const int count = static_cast<int>(std::ssize(whole)) / mpi::Job::instance().size();
  std::vector<float> shard(static_cast<std::size_t>(count));
  const auto body = [&] { item.theirs(whole.data(), shard.data(), count); };
  body();
  MPI_Barrier(MPI_COMM_WORLD);
  return seconds_of(body, times);
}

double measure_copy(std::vector<float>& whole, std::vector<float>& other, int times) {
  MPI_Barrier(MPI_COMM_WORLD);
  return seconds_of([&] { std::memcpy(other.data(), whole.data(), whole.size() * sizeof(float)); },
                    times);
}

void compare(const Case& item, std::int64_t nbytes) {
  const int times = nbytes >= (16 << 20) ? 2 : nbytes >= (1 << 20) ? 20 : 100;
  const std::int64_t numel = nbytes / 4;
  std::vector<float> whole(static_cast<std::size_t>(numel));
  std::vector<float> other(static_cast<std::size_t>(numel));
  std::vector<double> ours;
  std::vector<double> theirs;
  std::vector<double> copy;
  std::vector<double> ratio;
  for (int turn = 0; turn < kTurns; ++turn) {
    ours.push_back(measure_ours(item, numel, times));
    theirs.push_back(measure_theirs(item, whole, times));
    copy.push_back(measure_copy(whole, other, times));
    ratio.push_back(ours.back() / theirs.back());
  }
  if (process_rank() != 0) return;
  fmt::print(
      "{:<15} {:>8.2f} MB  ours {:>9.3f} ms  library {:>9.3f} ms  memcpy {:>8.3f} ms  {:.2f}\n",
      item.name, static_cast<double>(nbytes) / 1e6, bench::median(ours) * 1e3,
      bench::median(theirs) * 1e3, bench::median(copy) * 1e3, bench::median(ratio));
}

}  // namespace

int main() {
  const mpi::Job& job = mpi::Job::instance();
  if (job.rank() == 0) {
    fmt::print("{}, {} processes; the last column is our time over the library's\n", job.library(),
               job.size());
  }
  for (const Case& item : cases()) {
    for (const std::int64_t nbytes : {64 << 10, 1 << 20, 16 << 20, 64 << 20}) compare(item, nbytes);
  }
  return 0;
}
