// Collectives on CUDA memory that cannot be: each ends on every rank, with a reason.
#include "common/comm/worlds.h"
#include "cuda/ranks_on_devices.h"
#include "tensor/cuda/tree_sum.h"

#include <atomic>
#include <cstdlib>

namespace fsdp::collective_errors_test {

using comm_test::expect;
using cuda_test::Devices;
using cuda_test::error_of;
using cuda_test::kLabel;
using cuda_test::options_of;

namespace {

void all_reduce(ProcessGroup& group, Device device) {
  const Tensor data = Tensor::empty({5}, DType::float32, device);
  group.all_reduce(data, ReduceOp::sum, kLabel).wait();
}

}  // namespace

TEST_CASE("a rank with a tensor of the CPU among ranks with CUDA tensors is named",
          "[collectives]") {
  const std::string message =
      error_of({}, options_of(3, Devices::shared, DeviceData::canonical),
               [](ProcessGroup& group) { all_reduce(group, group.rank() == 1 ? kCpu : kCuda); });
  CHECK_THAT(message, contains("Aborted: ranks disagree on the device of collective 0: cuda on "
                               "rank 0, cpu on rank 1"));
  CHECK_THAT(message, contains("all_reduce  unit/forward"));
}

TEST_CASE("NCCL needs a device for every rank", "[collectives][stand-in]") {
  const std::string message = error_of({}, options_of(2, Devices::shared, DeviceData::nccl),
                                       [](ProcessGroup& group) { all_reduce(group, kCuda); });
  CHECK_THAT(message, contains("ranks 0 and 1 of this group are both on cuda:0"));
  CHECK_THAT(message, contains("all_reduce"));
}

TEST_CASE("on several devices NCCL needs kernels that are loaded before",
          "[collectives][cards][stand-in]") {
  const auto options = options_of(2, Devices::own, DeviceData::nccl);
  const auto sum = [](ProcessGroup& group) { all_reduce(group, Context::current().device()); };
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  const std::string message = error_of({}, options, sum);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  CHECK_THAT(message, contains("on 2 devices of one process, but CUDA_MODULE_LOADING is LAZY") &&
                          contains("set EAGER; or start a process for each card"));
}

TEST_CASE("whatever calls CUDA first, kernels are loaded before",
          "[collectives][cards][stand-in]") {
  Session session(Plan{});
  int devices = 0;
  cudaGetDeviceCount(&devices);  // the library is asked for CUDA only after this
  run_ranks(options_of(2, Devices::own, DeviceData::nccl),
            [](ProcessGroup& group) { all_reduce(group, Context::current().device()); });
  CHECK_NOTHROW(session.finish());
}

TEST_CASE("canonical sums need devices that reach each other's memory", "[collectives][stand-in]") {
  Plan plan;
  plan.has_peer_access = false;
  const auto options = options_of(2, Devices::own, DeviceData::canonical);
  const auto message = error_of(
      plan, options, [](ProcessGroup& group) { all_reduce(group, Context::current().device()); });
  CHECK_THAT(message, contains("cuda:0 cannot reach the memory of cuda:1"));
  CHECK_THAT(message, contains("Communicate by NCCL"));
}

TEST_CASE("a device reaches eight others: for more, copies go by the host, and sums are refused",
          "[collectives][stand-in]") {
  const Plan plan{.devices = 10};
  const auto options = options_of(10, Devices::own, DeviceData::canonical);
  cuda_test::run_on_devices(plan, 10, Devices::own, DeviceData::canonical, [](auto& group) {
    const auto rank = static_cast<float>(group.rank());
    const Tensor whole = Tensor::zeros({10});
    group.all_gather(whole, Tensor::from<float>({rank}, {1}), kLabel).wait();
    expect(whole.to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
           "wrong values");
  });
  const auto message = error_of(
      plan, options, [](ProcessGroup& group) { all_reduce(group, Context::current().device()); });
  CHECK_THAT(message, contains("cuda:0 cannot reach the memory of cuda:9"));
}

TEST_CASE("what a failed collective has started ends before its operands are freed",
          "[collectives][stand-in]") {
  for (const Mode mode : {Mode::lazy, Mode::random}) {
    Plan plan{.mode = mode, .seed = 3};
    plan.without_peers = 1;  // rank 0's part of the sum has been started when rank 1's fails
    const auto options = options_of(2, Devices::own, DeviceData::canonical);
    const auto message = error_of(plan, options, [](ProcessGroup& group) {
      const Tensor data = Tensor::zeros({300});
      group.all_reduce(data, ReduceOp::sum, kLabel).wait();
    });
    CHECK_THAT(message, contains("cuda:1 cannot reach the memory of cuda:0"));
  }
}

TEST_CASE("CUDA devices do not add float64", "[collectives]") {
  const auto options = options_of(2, Devices::shared, DeviceData::canonical);
  const auto message = error_of({}, options, [](ProcessGroup& group) {
    const Tensor data = Tensor::zeros({5}, DType::float64);
    group.all_reduce(data, ReduceOp::sum, kLabel).wait();
  });
  CHECK_THAT(message, contains("all_reduce of unit/forward: CUDA devices do not add float64"));
}

TEST_CASE("more ranks than a canonical sum can have", "[collectives]") {
  const auto options = options_of(cuda::kMostLeaves + 1, Devices::shared, DeviceData::canonical);
  const auto message = error_of({}, options, [](ProcessGroup& group) { all_reduce(group, kCuda); });
  CHECK_THAT(message,
             contains("257 ranks that are threads share CUDA devices, but at most 256 can"));
}

TEST_CASE("what NCCL reports of a link is an Aborted on every rank, with the table",
          "[collectives][stand-in]") {
  for (const bool calls_again : {true, false}) {
    INFO("calls again: " << calls_again);
    std::atomic<int> aborted = 0;
    const auto options = options_of(3, Devices::own, DeviceData::nccl);
    const auto message = error_of({}, options, [&](ProcessGroup& group) {
      const Device device = Context::current().device();
      all_reduce(group, device);
      group.barrier(kLabel).wait();
      if (group.rank() == 1) cuda_on_host::break_links();
      try {
        group.barrier(kLabel).wait();
        if (calls_again) all_reduce(group, device);
        for (;;) group.barrier(kLabel).wait();  // until somebody has looked
      } catch (const Aborted&) {
        ++aborted;
        throw;
      }
    });
    CHECK_THAT(message, contains("Aborted: NCCL reports that a collective has failed on cuda:0: "
                                 "remote process exited"));
    CHECK_THAT(message, contains("seq  operation"));
    CHECK(aborted == 3);
  }
}

TEST_CASE("what NCCL reports of a link ends the collectives of all groups together",
          "[collectives][stand-in]") {
  const auto options = options_of(4, Devices::own, DeviceData::nccl);
  const auto message = error_of({cuda_on_host::Mode::lazy, 0}, options, [](ProcessGroup& group) {
    const Device device = Context::current().device();
    const auto half = group.split(group.rank() / 2, group.rank());
    const Tensor data = Tensor::empty({5}, DType::float32, device);
    const Work whole = group.all_reduce(data, ReduceOp::sum, kLabel);
    const Work part =
        half->all_reduce(Tensor::empty({5}, DType::float32, device), ReduceOp::sum, kLabel);
    group.barrier(kLabel).wait();
    if (group.rank() == 1) cuda_on_host::break_links();
    for (;;) group.barrier(kLabel).wait();
  });
  CHECK_THAT(message, contains("NCCL reports that a collective has failed"));
}

}  // namespace fsdp::collective_errors_test
