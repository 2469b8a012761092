// Collectives on CUDA memory among other work of the device: what waits for what.
#include "common/comm/worlds.h"
#include "cuda/kernels.h"
#include "cuda/ranks_on_devices.h"
#include "tensor/ops.h"

#include <cuda_runtime.h>

#include <cstring>
#include <future>
#include <map>
#include <mutex>

namespace fsdp::collectives_test {

using comm_test::contribution;
using comm_test::expect;
using cuda_test::Devices;
using cuda_test::kLabel;
using cuda_test::run_on_devices;
using cuda_test::some_plans;

namespace {

constexpr std::int64_t kShard = 331;

bool is_on_cpu() { return Context::current().device() == kCpu; }

/// Copies on the compute stream, while the host goes on.
void copy(const Tensor& to, const Tensor& from) {
  if (is_on_cpu()) return ops::copy(to, from);
  RankDevice& device = Context::current().rank_device();
  device.copy(device.compute(), to.raw(), from.raw(), to.nbytes());
}

Tensor copy_of(const Tensor& tensor) {
  const Tensor made = Tensor::empty(tensor.shape(), tensor.dtype());
  copy(made, tensor);
  return made;
}

/// Overwrites on the compute stream.
void spoil(const Tensor& tensor) {
  if (is_on_cpu()) return static_cast<void>(std::memset(tensor.raw(), 0x55, tensor.nbytes()));
  Context::current().rank_device().fill(tensor.raw(), 0x55, tensor.nbytes());
}

using Start = std::function<Work(ProcessGroup&, const Tensor& whole, const Tensor& shard)>;

/// One of each kind. `whole` has W·n elements, `shard` n.
const std::map<std::string, Start>& all_kinds() {
  static const std::map<std::string, Start> kinds = {
      {"all_gather", [](auto& group, auto& whole,
                        auto& shard) { return group.all_gather(whole, shard, kLabel); }},
      {"reduce_scatter",
       [](auto& group, auto& whole, auto& shard) {
         return group.reduce_scatter(shard, whole, ReduceOp::avg, kLabel);
       }},
      {"all_reduce", [](auto& group, auto& whole,
                        auto&) { return group.all_reduce(whole, ReduceOp::sum, kLabel); }},
      {"broadcast", [](auto& group, auto& whole,
                       auto&) { return group.broadcast(whole, group.size() - 1, kLabel); }},
      {"broadcast from the first",
       [](auto& group, auto&, auto& shard) { return group.broadcast(shard, 0, kLabel); }},
      {"reduce",
       [](auto& group, auto& whole, auto& shard) {
         const Tensor in = whole.narrow(0, 0, kShard);
         return group.reduce(shard, in, group.size() - 1, ReduceOp::sum, kLabel);
       }},
  };
  return kinds;
}

enum class End { wait, drop };

/// Between the two barriers every rank makes the operands, starts the collective, ends it, keeps
/// the results, and overwrites all operands and frees them. The host gives all of this work to the
/// device, and never waits for it.
std::vector<Tensor> run_among_other_work(ProcessGroup& group, const Start& start, End end) {
  const std::int64_t numel = group.size() * kShard;
  const Tensor whole = Tensor::from(contribution<float>(group.rank(), numel), {numel});
  const Tensor shard = Tensor::from(contribution<float>(group.rank() + 10, kShard), {kShard});
  std::vector<Tensor> results;
  group.barrier(kLabel).wait();
  const std::int64_t waits = is_on_cpu() ? 0 : cuda_on_host::host_waits();
  {
    const Tensor own_whole = copy_of(whole), own_shard = copy_of(shard);
    {
      Work work = start(group, own_whole, own_shard);
      if (end == End::wait) work.wait();
    }
    results = {copy_of(own_whole), copy_of(own_shard)};
    spoil(own_whole);
    spoil(own_shard);
  }
  const std::int64_t more = is_on_cpu() ? 0 : cuda_on_host::host_waits();
  group.barrier(kLabel).wait();
  expect(more == waits, "the host has waited {} times for the device", more - waits);
  for (Tensor& result : results) result = Tensor::from(result.to_vector<float>(), result.shape());
  return results;
}

/// What each rank gets.
using Results = std::map<int, std::vector<std::vector<float>>>;

class Collected {
 public:
  void add(int rank, const std::vector<Tensor>& tensors) {
    const std::lock_guard lock(mutex_);
    for (const Tensor& tensor : tensors) results_[rank].push_back(tensor.to_vector<float>());
  }
  const Results& results() const { return results_; }

 private:
  std::mutex mutex_;
  Results results_;
};

template <class Check>
void in_all_plans(const Check& check) {
  for (const Plan& plan : some_plans()) {
    for (const int ranks : {1, 2, 3, 4}) {
      INFO(text_of(plan) << ", " << ranks << " ranks");
      check(plan, ranks);
    }
  }
}

Results on_devices(const Plan& plan, int ranks, Devices devices, DeviceData data,
                   const std::function<std::vector<Tensor>(ProcessGroup&)>& body) {
  Collected collected;
  run_on_devices(plan, ranks, devices, data,
                 [&](ProcessGroup& group) { collected.add(group.rank(), body(group)); });
  return collected.results();
}

}  // namespace

TEST_CASE("a collective is ordered among all other work of the devices, with the CPU's bits",
          "[collectives]") {
  for (const auto& [name, start] : all_kinds()) {
    INFO(name);
    std::map<int, Results> expected;
    for (const int ranks : {1, 2, 3, 4}) {
      Collected collected;
      run_ranks(ranks, [&, &start = start](ProcessGroup& group) {
        collected.add(group.rank(), run_among_other_work(group, start, End::wait));
      });
      expected[ranks] = collected.results();
    }
    in_all_plans([&, &start = start](const Plan& plan, int ranks) {
      for (const Devices devices : cuda_test::placements(ranks)) {
        for (const End end : {End::wait, End::drop}) {
          const Results results = on_devices(
              plan, ranks, devices, DeviceData::canonical,
              [&](ProcessGroup& group) { return run_among_other_work(group, start, end); });
          CHECK(results == expected[ranks]);
        }
      }
    });
  }
}

TEST_CASE("a collective of NCCL is ordered among all other work of the devices",
          "[collectives][cards]") {
  for (const auto& [name, start] : all_kinds()) {
    INFO(name);
    std::map<int, Results> first;
    in_all_plans([&, &start = start](const Plan& plan, int ranks) {
      for (const End end : {End::wait, End::drop}) {
        const Results results = on_devices(
            plan, ranks, Devices::own, DeviceData::nccl,
            [&](ProcessGroup& group) { return run_among_other_work(group, start, end); });
        CHECK(results == first.try_emplace(ranks, results).first->second);
      }
    });
  }
}

TEST_CASE("collectives of one group run one after the other, though nobody waits",
          "[collectives]") {
  // Each reads, on other ranks than its own, what the one before it wrote, and overwrites what that
  // one has read.
  const auto chain = [](ProcessGroup& group) {
    const std::int64_t numel = group.size() * kShard;
    const Tensor whole = Tensor::from(contribution<float>(group.rank(), numel), {numel});
    const Tensor shard = Tensor::empty({kShard});
    std::vector<Work> works;
    works.push_back(group.reduce_scatter(shard, whole, ReduceOp::sum, kLabel));
    works.push_back(group.all_gather(whole, shard, kLabel));
    works.push_back(group.broadcast(shard, 0, kLabel));
    works.push_back(group.all_reduce(whole, ReduceOp::avg, kLabel));
    works.push_back(group.reduce_scatter(shard, whole, ReduceOp::sum, kLabel));
    while (!works.empty()) {  // backwards
      works.back().wait();
      works.pop_back();
    }
    return std::vector<Tensor>{whole, shard};
  };
  in_all_plans([&](const Plan& plan, int ranks) {
    Collected expected;
    run_ranks(ranks, [&](ProcessGroup& group) { expected.add(group.rank(), chain(group)); });
    for (const Devices devices : cuda_test::placements(ranks)) {
      CHECK(on_devices(plan, ranks, devices, DeviceData::canonical, chain) == expected.results());
    }
    if (!cuda_test::have_cards(ranks)) return;
    on_devices(plan, ranks, Devices::own, DeviceData::nccl, chain);
  });
}

TEST_CASE("the first copies between devices take the direct way, if there is one",
          "[collectives][cards]") {
  for (const bool has_peer_access : {true, false}) {
    Plan plan = requested_or(Plan{});
    plan.has_peer_access = has_peer_access;
    run_on_devices(plan, 3, Devices::own, DeviceData::canonical, [&](ProcessGroup& group) {
      const auto rank = static_cast<float>(group.rank());
      const Tensor whole = Tensor::zeros({3}), shard = Tensor::from<float>({rank}, {1});
      group.all_gather(whole, shard, kLabel).wait();
      expect(whole.to_vector<float>() == std::vector<float>{0, 1, 2}, "wrong values");
      for (int peer = 0; peer < 3 && has_peer_access; ++peer) {
        int can = 0;
        cudaDeviceCanAccessPeer(&can, group.rank(), peer);  // of cards, not all can
        if (can == 0) continue;
        const cudaError_t answer = cudaDeviceEnablePeerAccess(peer, 0);
        cudaGetLastError();
        expect(answer == cudaErrorPeerAccessAlreadyEnabled, "cuda:{} was not enabled", peer);
      }
    });
  }
}

TEST_CASE("a rank that outlives another keeps its own device", "[collectives][cards]") {
  std::promise<void> first_has_ended;
  Session session(requested_or({.mode = Mode::lazy}));
  run_ranks(cuda_test::options_of(2, Devices::own, DeviceData::canonical),
            [&](ProcessGroup& group) {
              Work work;
              cuda_test::with_exact_memory([&](ProcessGroup& same) {
                const Tensor data = Tensor::zeros({5});
                work = same.all_reduce(data, ReduceOp::sum, kLabel);
                if (group.rank() == 0) return work.wait();
                first_has_ended.get_future().wait();
                work.wait();  // the last that needs the first rank's device
                int device = -1;
                cudaGetDevice(&device);
                expect(device == 1, "device {} is current", device);
              })(group);
              if (group.rank() == 0) first_has_ended.set_value();
            });
  CHECK_NOTHROW(session.finish());
}

}  // namespace fsdp::collectives_test
