// Collectives between two ranks of one process, beside what the machine's memory allows: two
// threads that copy the same bytes with memcpy. Measured in turns in one run, so that whatever else
// the machine does befalls both. Processor time is compared too: it counts what the communication
// threads take, and says the truth on a machine that is busy with other things.
#include "bench/support/measure.h"
#include "comm/world.h"
#include "tensor/tensor.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace fsdp;

constexpr int kRanks = 2;
constexpr int kRounds = 41;
constexpr std::int64_t kBytes = std::int64_t{64} << 20;
constexpr std::int64_t kNumel = kBytes / 4;
const Label kLabel{"bench", Phase::none};

/// Something to measure, and what to measure it by.
struct Case {
  std::string name;
  std::function<void()> collective;  // called on every rank
  std::function<void()> copy;
  double limit;  // of the ratio of the two
};

/// Wall time, and processor time of all threads of this process.
struct Duration {
  double wall;
  double processor;
};

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Duration duration_of(ProcessGroup& group, const std::function<void()>& body) {
  group.barrier(kLabel).wait();
  const auto begin = std::chrono::steady_clock::now();
  const double processor_begin = processor_seconds();
  body();
  group.barrier(kLabel).wait();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  return {wall.count(), processor_seconds() - processor_begin};
}

void compare(ProcessGroup& group, const Case& item) {
  std::vector<double> collective, copy, ratio, processor_ratio;
  for (int round = 0; round < kRounds; ++round) {
    const Duration ours = duration_of(group, item.collective);
    const Duration theirs = duration_of(group, item.copy);
    collective.push_back(ours.wall);
    copy.push_back(theirs.wall);
    ratio.push_back(ours.wall / theirs.wall);
    processor_ratio.push_back(ours.processor / theirs.processor);
  }
  if (group.rank() == 0)
    fmt::print(
        "{:<27} {:6.2f} ms   memcpy {:6.2f} ms   ratio {:.2f} (limit {:.2f})   of processor time "
        "{:.2f}\n",
        item.name, bench::median(collective) * 1e3, bench::median(copy) * 1e3, bench::median(ratio),
        item.limit, bench::median(processor_ratio));
}

void large(ProcessGroup& group) {
  const Tensor whole = Tensor::zeros({kNumel});
  const Tensor other = Tensor::zeros({kNumel});
  const Tensor shard = Tensor::zeros({kNumel / kRanks});
  const Tensor slot = whole.narrow(0, group.rank() * shard.numel(), shard.numel());
  const auto copy = [&](const Tensor& size) {
    return [&] { std::memcpy(other.raw(), whole.raw(), size.nbytes()); };
  };

  compare(group, {.name = "all_gather 64 MB",
                  .collective = [&] { group.all_gather(whole, shard, kLabel).wait(); },
                  .copy = copy(whole),
                  .limit = 1.05});
  compare(group, {.name = "all_gather 64 MB, in place",
                  .collective = [&] { group.all_gather(whole, slot, kLabel).wait(); },
                  .copy = copy(shard),
                  .limit = 1.05});
  compare(group,
          {.name = "reduce_scatter 64 MB",
           .collective = [&] { group.reduce_scatter(shard, whole, ReduceOp::sum, kLabel).wait(); },
           .copy = copy(whole),
           .limit = 1.0});
  compare(group, {.name = "all_reduce 64 MB",
                  .collective = [&] { group.all_reduce(whole, ReduceOp::sum, kLabel).wait(); },
                  .copy = copy(whole),
                  .limit = 2.0});
}

void latency(ProcessGroup& group) {
  const Tensor one = Tensor::zeros({1});
  std::vector<double> seconds;
  for (int round = 0; round < 2000; ++round)
    seconds.push_back(
        duration_of(group, [&] { group.all_reduce(one, ReduceOp::sum, kLabel).wait(); }).wall);
  if (group.rank() == 0)
    fmt::print("all_reduce of one element and a barrier, {} ranks: {:.1f} us\n", group.size(),
               bench::median(seconds) * 1e6);
}

}  // namespace

int main() {
  run_ranks(kRanks, large);
  for (const int ranks : {2, 4, 8}) run_ranks(ranks, latency);
  return 0;
}
