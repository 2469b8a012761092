// Copies of gradient shards to the host that a failed step leaves behind, while the device is late.
#include "cuda/on_device.h"
#include "optim/shard_sums.h"

#include <memory>
#include <utility>

namespace fsdp::testing {
namespace {

constexpr std::int64_t kNumel = 300;

/// Sums on the host, whose copies are under way one at a time.
optim::ShardSums sums_on_host(const std::shared_ptr<optim::HostCopies>& copies) {
  return {TreeAccumulator(MemoryKind::sharded_grad, nullptr),
          "unit",
          nullptr,
          {.offload = {.params = true, .grads = true}, .copies = copies}};
}

Tensor shard_of(float value) {
  const Tensor shard = Tensor::empty({kNumel});
  ops::fill(shard, value);
  return shard;
}

}  // namespace

TEST_CASE("copies of gradients that are dropped have ended before their bytes are used again",
          "[fsdp]") {
  cuda_test::on_device_in_some_plans([] {
    const auto copies = std::make_shared<optim::HostCopies>();
    optim::ShardSums sums = sums_on_host(copies);
    sums.push(shard_of(1));
    sums.clear();
    const Tensor next = shard_of(2);  // may have the bytes of the first
    CHECK(next.to_vector<float>() == std::vector<float>(kNumel, 2));
    sums.push(shard_of(3));  // nothing of the dropped one is in the sum
    const Tensor sum = sums.fold();
    CHECK(sum.device() == kCpuHost);
    CHECK(sum.to_vector<float>() == std::vector<float>(kNumel, 3));
    return cuda_test::Outputs{};
  });
}

}  // namespace fsdp::testing
