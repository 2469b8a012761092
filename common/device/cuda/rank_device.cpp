#include "device/cuda/rank_device.h"

#include "base/check.h"
#include "device/cuda/driver_gate.h"
#include "device/cuda/keep_device.h"
#include "device/cuda/launch.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <mutex>
#include <utility>

namespace fsdp::cuda {
namespace {

class CudaEvent final : public StreamEvent {
 public:
  explicit CudaEvent(Stream stream) {
    require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    require(cudaEventRecord(event, stream), "cudaEventRecord");
  }
  ~CudaEvent() override {
    // CUDA keeps what streams still wait for. A failure was reported by an earlier call.
    try {
      cudaEventDestroy(event);
    } catch (...) {  // only the stand-in throws
    }
  }
  cudaEvent_t event = nullptr;
};

cudaEvent_t event_of(const StreamEvent& event) {
  return dynamic_cast<const CudaEvent&>(event).event;
}

class CudaRankDevice final : public RankDevice {
 public:
  explicit CudaRankDevice(int index) : index_(index) {
    const std::unique_lock alone(driver_gate());
    activate();
    make(compute_);
  }
  ~CudaRankDevice() override {
    // Nothing may be thrown. What went wrong here did so in an earlier call, which has reported it.
    try {
      const KeepDevice keep;
      activate();
      for (Stream stream : streams()) {
        cudaStreamSynchronize(stream);
        cudaStreamDestroy(stream);
      }
      if (staging_ != nullptr) {
        const std::unique_lock alone(driver_gate());
        cudaFreeHost(staging_);
      }
    } catch (...) {
    }
  }

  int index() const override { return index_; }
  void activate() override { require(cudaSetDevice(index_), "cudaSetDevice"); }

  Stream compute() override { return compute_; }
  // For copies, of which copy() does not know: threads of other ranks may call that one.
  Stream copies() override {
    copies_are_pending_ = true;
    return make(copies_);
  }
  // Its kernels go first: others wait for what they bring, on this device and on the peers'.
  Stream communication() override {
    int least = 0, greatest = 0;
    if (communication_ == nullptr) {
      require(cudaDeviceGetStreamPriorityRange(&least, &greatest),
              "cudaDeviceGetStreamPriorityRange");
    }
    return make(communication_, greatest);
  }

  std::vector<Stream> streams() override {
    std::vector<Stream> made;
    for (Stream stream : {compute_, copies_, communication_}) {
      if (stream != nullptr) made.push_back(stream);
    }
    return made;
  }

  std::unique_ptr<StreamEvent> record(Stream stream) override {
    return std::make_unique<CudaEvent>(stream);
  }
  void make_wait(Stream stream, const StreamEvent& event) override {
    require(cudaStreamWaitEvent(stream, event_of(event)), "cudaStreamWaitEvent");
  }
  void wait_on_host(const StreamEvent& event) override {
    require(cudaEventSynchronize(event_of(event)), "cudaEventSynchronize");
  }
  bool has_ended(const StreamEvent& event) override {
    const cudaError_t answer = cudaEventQuery(event_of(event));
    if (answer == cudaErrorNotReady) return false;
    require(answer, "cudaEventQuery");
    return true;
  }

  void fill(std::byte* to, int value, std::size_t nbytes) override {
    if (nbytes == 0) return;
    require(cudaMemsetAsync(to, value, nbytes, compute_), "cudaMemsetAsync");
  }
  void copy(Stream stream, std::byte* to, const std::byte* from, std::size_t nbytes) override {
    if (nbytes == 0) return;
    require(cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  }
  void read(void* to, const std::byte* from, std::size_t nbytes) override {
    if (nbytes == 0) return;
    synchronize();
    require(cudaMemcpy(to, from, nbytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  // cudaMemcpy could return before the bytes are there, in no order with the compute stream.
  void write(std::byte* to, const void* from, std::size_t nbytes) override {
    const auto* bytes = static_cast<const std::byte*>(from);
    for (std::size_t done = 0; done < nbytes; done += kStaged) {
      const std::size_t part = std::min(nbytes - done, kStaged);
      if (staging_ == nullptr) {
        const std::unique_lock alone(driver_gate());
        require(cudaMallocHost(&staging_, kStaged), "cudaMallocHost");
      }
      std::memcpy(staging_, bytes + done, part);
      require(cudaMemcpyAsync(to + done, staging_, part, cudaMemcpyHostToDevice, compute_),
              "cudaMemcpyAsync");
      synchronize();
    }
  }
  void finish_copies() override {
    if (!copies_are_pending_) return;
    require(cudaStreamSynchronize(copies_), "cudaStreamSynchronize");
    copies_are_pending_ = false;
  }
  void synchronize() override {
    if (kernel_state_ != nullptr) kernel_state_->before_wait();
    require(cudaStreamSynchronize(compute_), "cudaStreamSynchronize");
    if (kernel_state_ != nullptr) kernel_state_->after_wait();
  }
  void set_kernel_state(KernelState* state) override { kernel_state_ = state; }

 private:
  static constexpr std::size_t kStaged = std::size_t{64} << 10;

  // Non-blocking: a stream that waits for the default one would be ordered by accident.
  static Stream make(Stream& stream, int priority = 0) {
    if (stream == nullptr) {
      require(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
              "cudaStreamCreateWithPriority");
    }
    return stream;
  }

  int index_;
  void* staging_ = nullptr;  // pinned, for write()
  bool copies_are_pending_ = false;
  KernelState* kernel_state_ = nullptr;
  Stream compute_ = nullptr, copies_ = nullptr, communication_ = nullptr;
};

}  // namespace

int device_count() {
  int count = 0;
  const cudaError_t answer = cudaGetDeviceCount(&count);
  FSDP_CHECK(answer == cudaSuccess && count > 0,
             "CUDA finds no card on this machine ({}). Check that nvidia-smi lists one, or use the "
             "device cpu.",
             answer == cudaSuccess ? "it counts none" : cudaGetErrorString(answer));
  return count;
}

// In a thread of its own: the caller may have no device yet, and to give it back the one that CUDA
// names, number 0, would take some hundred megabytes there.
Accelerator::Memory memory_of(int index) {
  return std::async(std::launch::async,
                    [index] {
                      const std::unique_lock alone(driver_gate());
                      require(cudaSetDevice(index), "cudaSetDevice");
                      std::size_t free = 0, total = 0;
                      require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
                      return Accelerator::Memory{static_cast<std::int64_t>(free),
                                                 static_cast<std::int64_t>(total)};
                    })
      .get();
}

std::shared_ptr<RankDevice> open_device(int index) {
  const int count = device_count();
  FSDP_CHECK(index >= 0 && index < count,
             "the device cuda:{} was asked for, but this machine has {}: cuda:0 to cuda:{}. Start "
             "fewer ranks, or let several use one card.",
             index, count, count - 1);
  return std::make_shared<CudaRankDevice>(index);
}

}  // namespace fsdp::cuda
