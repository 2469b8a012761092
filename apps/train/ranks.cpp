#include "train/ranks.h"

#include "comm/processes/launch.h"
#include "comm/processes/world.h"
#include "comm/thread_world.h"
#include "device/accelerator.h"
#include "tensor/tensor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>

namespace fsdp::train {
namespace {

// None: the CPU.
std::vector<Device> devices_of(const config::TrainConfig& config, bool in_threads) {
  std::vector<Device> devices;
  if (config.training.device != "cuda") return devices;
  for (const int card : cards_of_this_process(config.recipe.ranks, in_threads)) {
    devices.push_back({DeviceType::cuda, card});
  }
  return devices;
}

}  // namespace

// The processes of a machine take its cards in turn. A launcher may have shown each of them only
// its own, which is number 0 then.
std::vector<int> cards_of_this_process(std::int64_t ranks, bool in_threads) {
  const int count = accelerator()->count();
  if (const auto launch = processes::launched(); launch && !in_threads) {
    return {launch->rank_here % count};
  }
  std::vector<int> cards(static_cast<std::size_t>(std::min<std::int64_t>(ranks, count)));
  std::iota(cards.begin(), cards.end(), 0);
  return cards;
}

void run_on_ranks(const config::TrainConfig& config, bool in_threads,
                  const std::function<void(const Rank&)>& body) {
  const bool is_single = config.recipe.strategy == optim::Strategy::single;
  const int threads = static_cast<int>(config.parallel.threads_per_rank);
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  const RankOptions own{.world_size = config.recipe.ranks,
                        .threads_per_rank = threads,
                        .seed = seed,
                        .devices = devices_of(config, in_threads),
                        .device_data = config.parallel.device_collectives == "nccl"
                                           ? DeviceData::nccl
                                           : DeviceData::canonical};
  const auto as_rank = [&](ProcessGroup& group) { body({borrowed(group)}); };
  if (processes::launched() && !is_single && !in_threads) return processes::run_ranks(own, as_rank);

  const auto here = [&] {
    if (!is_single) return threads::run_ranks(own, as_rank);
    const Device device = own.devices.empty() ? kCpu : own.devices.front();
    Context context({.threads = threads, .seed = seed, .device = device});
    const ContextScope scope(context);
    body({});
  };
  if (!processes::launched()) {
    here();
  } else {  // the other processes wait for the first
    processes::run_ranks({}, [&](ProcessGroup&) { here(); });
  }
}

template <class T>
std::vector<T> gather(ProcessGroup* group, const std::vector<T>& mine, const Label& label) {
  if (group == nullptr) return mine;
  const AllocationScope as_temp(MemoryKind::temp);
  const Tensor in = Tensor::from(mine, {std::ssize(mine)});
  const Tensor out = Tensor::empty({std::ssize(mine) * group->size()}, dtype_of<T>());
  group->all_gather(out, in, label).wait();
  return out.template to_vector<T>();
}

template std::vector<float> gather(ProcessGroup*, const std::vector<float>&, const Label&);
template std::vector<std::int64_t> gather(ProcessGroup*, const std::vector<std::int64_t>&,
                                          const Label&);

}  // namespace fsdp::train
