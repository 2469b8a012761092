// Collectives between processes on CUDA memory that cannot be: each ends in every process, with a
// reason.
#include "cuda/ranks_on_devices.h"

#include <nccl.h>

#include <cstdlib>

namespace fsdp {
namespace {

using cuda_on_host::host_waits;
using cuda_on_host::Mode;
using cuda_test::Devices;
using cuda_test::error_of;
using cuda_test::kLabel;
using cuda_test::options_of;

using Body = std::function<void(ProcessGroup&)>;

Work all_reduce(ProcessGroup& group, const Tensor& data) {
  return group.all_reduce(data, ReduceOp::sum, kLabel);
}

}  // namespace

TEST_CASE("processes have no canonical sums on devices") {
  const std::string message = error_of({}, options_of(2, Devices::own, DeviceData::canonical),
                                       [](ProcessGroup&) { FAIL("a rank has begun"); });
  CHECK_THAT(message, contains("device_data is canonical, which is for ranks that are threads"));
}

TEST_CASE("two processes on one device are refused") {
  for (const int world_size : {2, 3, 4}) {
    const std::string message =
        error_of({}, options_of(world_size, Devices::shared, DeviceData::nccl),
                 [](ProcessGroup& group) { all_reduce(group, Tensor::zeros({5})).wait(); });
    CHECK_THAT(message, contains("NCCL could not connect cuda:0 to the devices of the other "
                                 "processes (each process needs a device of its own): invalid "
                                 "usage"));
  }
}

TEST_CASE("communicators that block are refused") {
  REQUIRE(setenv("NCCL_COMM_BLOCKING", "1", 1) == 0);
  const std::string message =
      error_of({}, options_of(2, Devices::own, DeviceData::nccl),
               [](ProcessGroup& group) { all_reduce(group, Tensor::zeros({5})).wait(); });
  REQUIRE(unsetenv("NCCL_COMM_BLOCKING") == 0);
  CHECK_THAT(message, contains("NCCL_COMM_BLOCKING is 1") && contains("unset it"));
}

TEST_CASE("a process with a tensor of the CPU among those with CUDA tensors is named") {
  const std::string message =
      error_of({}, options_of(3, Devices::own, DeviceData::nccl), [](ProcessGroup& group) {
        const Device device = group.rank() == 1 ? kCpu : Context::current().device();
        all_reduce(group, Tensor::empty({5}, DType::float32, device)).wait();
      });
  CHECK_THAT(message, contains("Aborted: ranks disagree on the device of collective 0: cuda on "
                               "rank 0, cpu on rank 1"));
}

TEST_CASE("what NCCL reports in one process ends the collectives of all") {
  for (const Mode mode : {Mode::lazy, Mode::random}) {
    for (const bool waits_on_host : {false, true}) {
      INFO("waits on the host: " << waits_on_host);
      const auto options = options_of(3, Devices::own, DeviceData::nccl);
      const auto message = error_of({mode, 3}, options, [&](ProcessGroup& group) {
        const Tensor data = Tensor::zeros({5});
        all_reduce(group, data).wait();
        group.barrier(kLabel).wait();
        if (group.rank() == 1) cuda_on_host::break_links();
        // The others' devices wait for rank 1, and so may their hosts.
        if (waits_on_host && group.rank() != 1) data.to_vector<float>();
        for (;;) group.barrier(kLabel).wait();  // until somebody has looked
      });
      // Rank 1 looks, or another one after rank 1 has ended its own.
      CHECK_THAT(message, contains("Aborted: rank ") &&
                              contains(": NCCL reports that a collective has failed on cuda:") &&
                              contains("remote process exited"));
      CHECK_THAT(message, contains("seq  operation"));
    }
  }
}

TEST_CASE("what NCCL reports of one group ends the collectives of all groups together") {
  const auto options = options_of(4, Devices::own, DeviceData::nccl);
  const auto message = error_of({Mode::lazy, 3}, options, [&](ProcessGroup& group) {
    const auto half = group.split(group.rank() / 2, group.rank());
    const Work whole = all_reduce(group, Tensor::zeros({5}));
    const Work part = all_reduce(*half, Tensor::zeros({5}));
    group.barrier(kLabel).wait();
    if (group.rank() == 1) cuda_on_host::break_links();
    for (;;) group.barrier(kLabel).wait();  // until somebody has looked
  });
  // A rank may still be about to connect.
  CHECK_THAT(message, contains("NCCL reports that a collective has failed on cuda:") ||
                          contains("NCCL could not connect cuda:"));
}

TEST_CASE("a process whose device fails leaves no other waiting for it") {
  for (const Mode mode : {Mode::lazy, Mode::random}) {
    for (const int world_size : {2, 3, 4}) {
      Session session({mode, 3});
      const auto options = options_of(world_size, Devices::own, DeviceData::nccl);
      const Body body = [&](ProcessGroup& group) {
        const Tensor data = Tensor::zeros({5});
        const Work first = all_reduce(group, data);
        group.barrier(kLabel).wait();
        if (group.rank() == 1) {
          CHECK_THROWS_AS(cudaFree(&session), Misuse);  // and every later call
          throw Error("a kernel has failed");
        }
        group.barrier(kLabel).wait();
      };
      // NCCL may notice it before the exception has left the body.
      CHECK_THAT(message_of<Error>([&] { run_ranks(options, cuda_test::with_exact_memory(body)); }),
                 contains("a kernel has failed") ||
                     contains("remote process exited or there was a network error"));
    }
  }
}

TEST_CASE("processes that cannot connect all end, and leave nothing to a later world") {
  for (const int world_size : {2, 3, 4}) {
    const auto options = options_of(world_size, Devices::own, DeviceData::nccl);
    {
      Session session({Mode::lazy, 0});
      const Body body = [&](ProcessGroup& group) {
        const auto other = group.split(0, group.rank());
        const Tensor data = Tensor::zeros({5});
        Work work;
        if (group.rank() == 0) {
          work = all_reduce(group, data);
          CHECK_THROWS_AS(cudaFree(&session), Misuse);  // so it has no id when all have called
        }
        other->barrier(kLabel).wait();
        if (group.rank() != 0) work = all_reduce(group, data);
        work.wait();
      };
      CHECK_THAT(message_of<Error>([&] { run_ranks(options, cuda_test::with_exact_memory(body)); }),
                 contains("cudaFree") || contains("rank 0 could not make an id for NCCL"));
    }
    Session session({Mode::lazy, 0});
    run_ranks(options, [](ProcessGroup& group) {
      const Tensor ones = Tensor::from(std::vector<float>(5, 1.0F), {5});
      all_reduce(group, ones).wait();
      CHECK(ones.to_vector<float>().front() == static_cast<float>(group.size()));
    });
    CHECK_NOTHROW(session.finish());
  }
}

TEST_CASE("a process that throws ends all, and leaves nothing on a device") {
  for (const Mode mode : {Mode::lazy, Mode::eager, Mode::random}) {
    const auto options = options_of(4, Devices::own, DeviceData::nccl);
    const auto message = error_of({mode, 3}, options, [&](ProcessGroup& group) {
      const Tensor data = Tensor::from(std::vector<float>(5, 1.0F), {5});
      const Work first = all_reduce(group, data);
      group.barrier(kLabel).wait();
      if (group.rank() == 2) throw Error("no more");
      all_reduce(group, Tensor::zeros({3})).wait();
    });
    CHECK(message == "rank 2: no more");
  }
}

TEST_CASE("a collective between processes makes no host wait for a device") {
  Session session({Mode::lazy, 0});
  run_ranks(options_of(4, Devices::own, DeviceData::nccl), [](ProcessGroup& group) {
    const Tensor data = Tensor::from(std::vector<float>(5, 1.0F), {5});
    const std::int64_t before = host_waits();
    for (int i = 0; i < 3; ++i) all_reduce(group, data).wait();
    CHECK(host_waits() == before);
    CHECK(data.to_vector<float>() == std::vector<float>(5, 64.0F));
  });
  CHECK_NOTHROW(session.finish());
}

}  // namespace fsdp
