// What asks the driver for memory, or loads kernels, while a collective is launched on one device
// after the other.
#include "device/cuda/driver_gate.h"
#include "cuda/kernels.h"
#include "cuda/ranks_on_devices.h"
#include "device/accelerator.h"
#include "tensor/ops.h"

#include <future>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string_view>

namespace fsdp::driver_gate_test {

using cuda_test::Devices;
using cuda_test::kLabel;
using cuda_test::some_plans;
using Body = std::function<void(ProcessGroup&)>;

namespace {

/// How often each call was made that the stand-in watches, and which of them the gate let through.
class Watch {
 public:
  Watch() {
    cuda_on_host::watch_driver([this](std::string_view call) {
      // A thread may not ask for a mutex that it holds, so another one does.
      const bool is_free =
          std::async(std::launch::async, [call] { return is_free_for(call); }).get();
      const std::lock_guard lock(mutex_);
      ++calls_[std::string(call)];
      if (is_free) unguarded_.emplace(call);
    });
  }
  ~Watch() { cuda_on_host::watch_driver(nullptr); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  int calls(const std::string& call) { return calls_[call]; }
  const std::set<std::string>& unguarded() const { return unguarded_; }

 private:
  // A launch holds the gate shared, all others alone. What another thread holds meanwhile looks the
  // same, so each test also runs with a single rank.
  static bool is_free_for(std::string_view call) {
    std::shared_mutex& gate = cuda::driver_gate();
    const bool launches = call == "ncclGroupEnd";
    const bool got = launches ? gate.try_lock() : gate.try_lock_shared();
    if (got) launches ? gate.unlock() : gate.unlock_shared();
    return got;
  }

  std::map<std::string, int> calls_;
  std::set<std::string> unguarded_;
  std::mutex mutex_;
};

/// Runs `body` on ranks with devices of their own. Each of `calls` must be made by every rank, and
/// every call that is watched must hold the gate. @returns how often a launch was half done
int check_guarded(const Plan& plan, int ranks, DeviceData data,
                  const std::vector<std::string>& calls, const Body& body) {
  INFO(text_of(plan) << ", " << ranks << " ranks");
  Session session(plan);
  Watch watch;
  run_ranks(cuda_test::options_of(ranks, Devices::own, data), body);
  CHECK_NOTHROW(session.finish());
  CHECK(watch.unguarded() == std::set<std::string>{});
  for (const std::string& call : calls) {
    INFO(call);
    CHECK(watch.calls(call) >= ranks);
  }
  CHECK((watch.calls("ncclCommInitAll") > 0) == (data == DeviceData::nccl));
  return watch.calls("ncclGroupEnd");
}

void multiply() {
  const Tensor square = Tensor::from<float>({1, 2, 3, 4}, {2, 2}), out = Tensor::empty({2, 2});
  ops::matmul(out, square, ops::Transpose::no, square, ops::Transpose::no);
}

}  // namespace

TEST_CASE("memory and kernels wait while a collective is launched on one device after the other",
          "[collectives][cards][stand-in]") {
  const Body train = [](ProcessGroup& group) {
    multiply();
    for (std::int64_t numel = 1 << 10; numel <= 1 << 20; numel <<= 5) {
      const Tensor sums = Tensor::zeros({numel});  // another segment each time
      const Tensor host = Tensor::empty({numel}, DType::float32, kCpuHost);
      group.all_reduce(sums, ReduceOp::sum, kLabel).wait();
    }
  };
  for (const Plan& plan : some_plans()) {
    for (const int ranks : {1, 2, 3, 4}) {
      const int launches = check_guarded(
          plan, ranks, DeviceData::nccl,
          {"cudaSetDevice", "cudaMalloc", "cudaFree", "cudaMallocHost", "cudaFreeHost",
           "cublasLtCreate", "cublasLtMatmul", "cublasLtDestroy", "ncclCommDestroy"},
          train);
      CHECK(launches >= 3 * (ranks - 1));
    }
  }
}

// By itself: no other call asks for pinned memory, or gives it back.
TEST_CASE("memory for values that go to a device waits as well", "[collectives][cards][stand-in]") {
  for (const Plan& plan : some_plans()) {
    check_guarded(plan, 1, DeviceData::nccl, {"cudaMallocHost", "cudaFreeHost"},
                  [](ProcessGroup& group) {
                    const Tensor sums = Tensor::from<float>({1, 2}, {2});
                    group.all_reduce(sums, ReduceOp::sum, kLabel).wait();
                  });
  }
}

TEST_CASE("memory that each tensor takes by itself waits as well",
          "[collectives][cards][stand-in]") {
  const Body sum = [](ProcessGroup& group) {
    const Tensor sums = Tensor::zeros({300});  // each rank adds up a part
    group.all_reduce(sums, ReduceOp::sum, kLabel).wait();
  };
  for (const Plan& plan : some_plans()) {
    for (const int ranks : {1, 3}) {
      check_guarded(plan, ranks, DeviceData::nccl, {"cudaMallocAsync", "cudaMemPoolSetAccess"},
                    cuda_test::with_exact_memory(sum));
    }
    check_guarded(plan, 3, DeviceData::canonical, {"cudaDeviceEnablePeerAccess"},
                  cuda_test::with_exact_memory(sum));
  }
}

TEST_CASE("the memory of a device is asked for while nothing is launched",
          "[device][cards][stand-in]") {
  Session session(requested_or(Plan{}));
  Watch watch;
  CHECK(accelerator()->memory_of(2).total > 0);
  CHECK(watch.calls("cudaSetDevice") == 1);
  CHECK(watch.unguarded() == std::set<std::string>{});
  session.finish();
}

}  // namespace fsdp::driver_gate_test
