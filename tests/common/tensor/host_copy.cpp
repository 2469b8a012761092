// Copies between a device and its host: values, bytes, time, and what the trace says of them.
#include "tensor/host_copy.h"

#include "base/check.h"
#include "device/context.h"
#include "support/catch.h"
#include "tensor/cast.h"
#include "tensor/exact_norm.h"
#include "tensor/ops.h"

namespace fsdp::host_copy_test {
namespace {

const Label kLabel{"blocks.0", Phase::forward};

Tensor on_host(const std::vector<float>& values) {
  const DeviceScope host(Context::current().host());
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

TEST_CASE("a copy moves values between two memories, which are counted apart") {
  Context context({.has_cpu_host = true});
  const ContextScope scope(context);
  context.trace().set_recording(true);
  const Tensor shard = on_host({1, 2, 3});
  CHECK(shard.device() == kCpuHost);
  CHECK(context.host_tracker().current_total() == 12);
  const Tensor copy = Tensor::empty({3}, DType::float32);
  start_host_copy(copy, shard, kLabel).wait();
  CHECK(copy.to_vector<float>() == std::vector<float>{1, 2, 3});
  ops::scale(copy, 2);
  ops::copy(shard, copy);  // the same, waited for
  CHECK(shard.to_vector<float>() == std::vector<float>{2, 4, 6});
  CHECK(context.host_tracker().current_total() == 12);
  CHECK(context.trace().lines() == std::vector<std::string>{"issue copy_to_device blocks.0/forward",
                                                            "wait copy_to_device blocks.0/forward",
                                                            "issue copy_to_host",
                                                            "wait copy_to_host"});
  CHECK(context.trace().events()[0].nbytes == 12);
}

TEST_CASE("bytes under a copy cannot be freed before it is waited for") {
  Context context({.has_cpu_host = true});
  const ContextScope scope(context);
  const Tensor shard = on_host({1, 2});
  const Tensor copy = Tensor::empty({2}, DType::float32);
  HostCopy under_way = start_host_copy(copy, shard, kLabel);
  CHECK_THROWS_AS(copy.storage()->free(), StorageError);
  CHECK_THROWS_AS(shard.storage()->free(), StorageError);
  under_way.wait();
  copy.storage()->free();
  shard.storage()->free();
  CHECK(context.host_tracker().current_total() == 0);
}

TEST_CASE("a copy rounds where the dtypes differ, like ops::copy on one device") {
  Context context({.has_cpu_host = true});
  const ContextScope scope(context);
  const Tensor shard = on_host({1.00390625F, -3.14159F});
  const Tensor rounded = Tensor::empty({2}, DType::bfloat16);
  start_host_copy(rounded, shard, kLabel).wait();
  CHECK(ops::equal_bits(rounded,
                        cast(Tensor::from<float>({1.00390625F, -3.14159F}, {2}), DType::bfloat16)));
}

TEST_CASE("other pairs of tensors are refused") {
  Context context({.has_cpu_host = true});
  const ContextScope scope(context);
  const Tensor shard = on_host({1, 2});
  const Tensor here = Tensor::zeros({2}, DType::float32);
  CHECK_THROWS_WITH(start_host_copy(here, here, kLabel),
                    contains("one tensor is on cpu, the other on cpu"));
  CHECK_THROWS_WITH(ops::copy(Tensor::empty({2}, DType::float32, kFake), here),
                    contains("one tensor is on fake, the other on cpu"));
  CHECK_THROWS_WITH(ops::copy(Tensor::zeros({3}, DType::float32), shard), contains("differ"));
  CHECK_THROWS_WITH(ops::add(here, here, shard), contains("is on cpu:1, the others on cpu"));
  CHECK_THROWS_WITH(ops::equal_bits(here, shard), contains("one tensor is on cpu"));
  shard.storage()->free();
  CHECK_THROWS_AS(start_host_copy(here, shard, kLabel), StorageError);
}

TEST_CASE("an all-gather reads the shard, a copy of it, or a copy that comes from the host") {
  Context context({.has_cpu_host = true});
  const ContextScope scope(context);
  const Tensor full = Tensor::zeros({4}, DType::float32);
  const Tensor here = Tensor::from<float>({5, 6}, {2});
  CHECK(gather_input(here, full, Phase::forward).storage() == here.storage());
  const AllocationScope as_input(MemoryKind::all_gather);
  const std::int64_t before = context.tracker().current()[MemoryKind::all_gather];
  const Tensor input = gather_input(on_host({5, 6}), full, Phase::forward);
  CHECK(input.device() == kCpu);
  CHECK(input.to_vector<float>() == std::vector<float>{5, 6});
  CHECK(context.tracker().current()[MemoryKind::all_gather] == before + 8);
  const Tensor half = Tensor::zeros({4}, DType::float16);
  CHECK(gather_input(on_host({5, 6}), half, Phase::forward).dtype() == DType::float16);
}

TEST_CASE("on the virtual clock a copy goes on beside computing, and copies queue up") {
  Context context(
      {.device = kFake, .cost_model = CostModel{.ps_per_flop = 1, .bus_ps_per_byte = 10}});
  const ContextScope scope(context);
  VirtualClock& clock = *context.clock();
  const Tensor shard = on_host(std::vector<float>(4));
  const Tensor a = Tensor::empty({4}, DType::float32);
  const Tensor b = Tensor::empty({4}, DType::bfloat16);
  HostCopy first = start_host_copy(a, shard, kLabel);
  HostCopy second = start_host_copy(b, shard, kLabel);  // what crosses the bus has 16 bytes
  CHECK(clock.now() == 0);
  CHECK(a.storage()->ready() == 160);
  CHECK(b.storage()->ready() == 320);
  clock.compute({.flops = 200});
  first.wait();
  CHECK(clock.now() == 200);
  second.wait();
  CHECK(clock.now() == 320);
  second.wait();
  HostCopy().wait();
  CHECK(clock.now() == 320);
}

TEST_CASE("the host computes at the speed of its memory, and the rank waits for it") {
  Context context(
      {.device = kFake,
       .cost_model = CostModel{.ps_per_flop = 1, .ps_per_byte = 1, .host_ps_per_byte = 3}});
  const ContextScope scope(context);
  ops::fill(on_host(std::vector<float>(5)), 0);
  CHECK(context.clock()->now() == 5 * 4 * 3);
}

TEST_CASE("squares of what is on the host are added to counters on the device") {
  Context context({.has_cpu_host = true});
  const ContextScope scope(context);
  ExactSquareSum sum;
  sum.add(on_host({3, 4}));
  CHECK(sum.value() == 25);
  CHECK(sum.counters().device() == kCpu);
}

}  // namespace fsdp::host_copy_test
