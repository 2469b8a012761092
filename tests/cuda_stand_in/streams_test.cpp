// Streams, events and waits. A missing edge is found in every mode, whether or not the values
// differ.
#include "cuda_stand_in/mistakes.h"
#include "cuda_stand_in/plans.h"
#include "cuda_stand_in/samples.h"

using mistakes::increment;

namespace {

constexpr int kElements = 64;
const std::vector<float> kZeros(kElements);

/// Two streams with a buffer each: `first` writes a, `second` makes b of it.
struct TwoStreams {
  cudaStream_t first = new_stream(), second = new_stream();
  OnDevice<float> a{first, kZeros}, b{second, kZeros};
  cudaEvent_t ready = new_event(), other = new_event();

  void write() { increment(first, a.data, b.data, kElements); }
  void read() { increment(second, b.data, a.data, kElements); }
  /// Ends well: both streams are waited for before either buffer is freed.
  std::vector<float> finish() {
    check(cudaStreamSynchronize(first));
    check(cudaStreamSynchronize(second));
    auto result = b.read_back();
    a.free();
    b.free();
    return result;
  }
};

const std::vector<std::string> kRace = {"increment_kernel", "the same bytes",
                                        "nothing orders the two"};

}  // namespace

TEST_CASE("an event orders two streams, in every mode") {
  const auto out = same_in_every_plan<std::vector<float>>([] {
    TwoStreams two;
    check(cudaEventRecord(two.ready, two.second));
    check(cudaStreamWaitEvent(two.first, two.ready));
    two.write();
    check(cudaEventRecord(two.ready, two.first));
    check(cudaStreamWaitEvent(two.second, two.ready));
    two.read();
    return two.finish();
  });
  CHECK(out == std::vector<float>(kElements, 2));
}

TEST_CASE("a wait of the host orders two streams") {
  const auto out = same_in_every_plan<std::vector<float>>([] {
    TwoStreams two;
    two.write();
    check(cudaEventRecord(two.ready, two.first));
    check(cudaEventSynchronize(two.ready));
    two.read();
    return two.finish();
  });
  CHECK(out == std::vector<float>(kElements, 2));
}

TEST_CASE("polling ends in every mode, and orders as a wait does") {
  same_in_every_plan<std::vector<float>>([] {
    TwoStreams two;
    two.write();
    check(cudaEventRecord(two.ready, two.first));
    cudaError_t state = cudaErrorNotReady;
    while ((state = cudaEventQuery(two.ready)) == cudaErrorNotReady) continue;
    check(state);
    two.read();
    while ((state = cudaStreamQuery(two.second)) == cudaErrorNotReady) continue;
    check(state);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    return two.finish();
  });
}

TEST_CASE("edges go on: what an event of an event orders is ordered") {
  same_in_every_plan<std::vector<float>>([] {
    TwoStreams two;
    const cudaStream_t between = new_stream();
    two.write();
    check(cudaEventRecord(two.ready, two.first));
    check(cudaStreamWaitEvent(between, two.ready));
    check(cudaEventRecord(two.other, between));
    check(cudaStreamWaitEvent(two.second, two.other));
    two.read();
    check(cudaStreamSynchronize(two.second));
    check(cudaStreamSynchronize(between));
    return two.finish();
  });
}

TEST_CASE("lazy streams run nothing before a wait, and eager ones everything at once") {
  for (const Mode mode : {Mode::lazy, Mode::eager}) {
    const Session session({mode, 0});
    const cudaStream_t stream = new_stream();
    const OnDevice<int> zero(stream, 1);
    void* pinned = nullptr;
    check(cudaMallocHost(&pinned, sizeof(int)));
    check(cudaMemsetAsync(zero.data, 0, sizeof(int), stream));
    check(cudaMemcpyAsync(pinned, zero.data, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(*static_cast<int*>(pinned) == (mode == Mode::lazy ? -1 : 0));
    check(cudaStreamSynchronize(stream));
    CHECK(*static_cast<int*>(pinned) == 0);
  }
}

TEST_CASE("the first misuse is thrown again by every later call") {
  const Session session({Mode::eager, 0});
  const std::string first = message_of<Misuse>([] { cudaStreamSynchronize(nullptr); });
  CHECK_FALSE(first.empty());
  CHECK(message_of<Misuse>([] { new_stream(); }) == first);
}

TEST_CASE("a missing wait is found") {
  misuse_in_every_plan(kRace, [] {
    TwoStreams two;
    two.write();
    check(cudaEventRecord(two.ready, two.first));
    two.read();
    two.finish();
  });
}

TEST_CASE("a wait for an event of the wrong stream is found") {
  misuse_in_every_plan(kRace, [] {
    TwoStreams two;
    two.write();
    check(cudaEventRecord(two.other, two.second));
    check(cudaStreamWaitEvent(two.second, two.other));
    two.read();
    two.finish();
  });
}

TEST_CASE("a wait for an event that was recorded too early is found") {
  misuse_in_every_plan(kRace, [] {
    TwoStreams two;
    check(cudaEventRecord(two.ready, two.first));
    two.write();
    check(cudaStreamWaitEvent(two.second, two.ready));
    two.read();
    two.finish();
  });
}

TEST_CASE("a wait for an event that was never recorded is found") {
  misuse_in_every_plan({"stream 2 of device 0 waits for event 2, which was never recorded"}, [] {
    TwoStreams two;
    check(cudaStreamWaitEvent(two.second, two.other));
  });
}

TEST_CASE("two streams that write one buffer are found") {
  misuse_in_every_plan({"writes byte 0 of device allocation", "nothing orders the two"}, [] {
    TwoStreams two;
    check(cudaMemsetAsync(two.a.data, 0, 4, two.first));
    check(cudaMemsetAsync(two.a.data, 0, 4, two.second));
    two.finish();
  });
}

TEST_CASE("two streams that write two halves of a buffer are right") {
  const auto out = same_in_every_plan<std::vector<float>>([] {
    TwoStreams two;
    check(cudaMemsetAsync(two.b.data, 0, 126, two.first));  // ends within the 32nd float
    check(cudaMemsetAsync(reinterpret_cast<char*>(two.b.data) + 126, 0, 130, two.second));
    return two.finish();
  });
  CHECK(out == kZeros);
}

TEST_CASE("a write below a reader of another stream is found") {
  misuse_in_every_plan(
      {"cudaMemsetAsync of 4 bytes on stream 3", "increment_kernel", "nothing orders the two"}, [] {
        TwoStreams two;
        const cudaStream_t third = new_stream();
        two.read();
        while (cudaStreamQuery(two.second) == cudaErrorNotReady) continue;  // ordered before
        two.read();
        check(cudaMemsetAsync(two.a.data, 0, 4, third));  // ordered after the first one only
        check(cudaDeviceSynchronize());
        two.finish();
      });
}

TEST_CASE("an unsynchronized read back is found in host code that is compiled with kernels") {
  // In a lazy stream it is the copy that comes second, and the host has read what was there before.
  misuse_in_every_plan({"host code reads", "cudaMemcpyAsync of 256 bytes on stream 1",
                        "byte 0 of pinned allocation", "nothing orders the two"},
                       [] {
                         TwoStreams two;
                         void* pinned = nullptr;
                         check(cudaMallocHost(&pinned, kElements * sizeof(float)));
                         check(cudaMemcpyAsync(pinned, two.a.data, kElements * sizeof(float),
                                               cudaMemcpyDeviceToHost, two.first));
                         mistakes::sum_on_host(static_cast<const float*>(pinned), kElements);
                         check(cudaStreamSynchronize(two.first));
                       });
}

TEST_CASE("default streams are refused") {
  for (const cudaStream_t stream : {cudaStream_t{}, reinterpret_cast<cudaStream_t>(2)}) {
    misuse_in_every_plan({"was called with a default stream"},
                         [&] { check(cudaStreamSynchronize(stream)); });
  }
  misuse_in_every_plan({"cudaLaunchKernelEx was called with a default stream"}, [] {
    TwoStreams two;
    increment(nullptr, two.a.data, two.b.data, kElements);
  });
}

TEST_CASE("handles that were destroyed are refused") {
  misuse_in_every_plan({"cudaStreamSynchronize was called with stream 1 of device 0, which was"},
                       [] {
                         const cudaStream_t stream = new_stream();
                         check(cudaStreamDestroy(stream));
                         check(cudaStreamSynchronize(stream));
                       });
  misuse_in_every_plan({"cudaEventSynchronize was called with event 1, which was destroyed"}, [] {
    const cudaEvent_t event = new_event();
    check(cudaEventDestroy(event));
    check(cudaEventSynchronize(event));
  });
}

TEST_CASE("the host's waits are counted, and asynchronous calls are none") {
  for (const Plan& plan : all_plans()) {
    const Session session(plan);
    const cudaStream_t stream = new_stream();
    const cudaEvent_t event = new_event();
    void* device = nullptr;
    void* pinned = nullptr;
    check(cudaMalloc(&device, 4));
    check(cudaMallocHost(&pinned, 4));
    check(cudaMemsetAsync(device, 0, 4, stream));
    check(cudaMemcpyAsync(pinned, device, 4, cudaMemcpyDeviceToHost, stream));
    check(cudaEventRecord(event, stream));
    CHECK(cuda_on_host::host_waits() == 0);
    check(cudaEventSynchronize(event));
    check(cudaStreamSynchronize(stream));
    check(cudaDeviceSynchronize());
    CHECK(cuda_on_host::host_waits() == 3);
    check(cudaFree(device));
    check(cudaFreeHost(pinned));
    CHECK(cuda_on_host::host_waits() == 5);
  }
}

TEST_CASE("work that nothing waits for is reported at the end, in lazy mode") {
  Session session({Mode::lazy, 0});
  const cudaStream_t stream = new_stream();
  void* device = nullptr;
  check(cudaMallocAsync(&device, 4, stream));
  CHECK_THAT(message_of<Misuse>([&] { session.finish(); }), contains("nothing has waited for"));
}

TEST_CASE("there is no clock") {
  misuse_in_every_plan({"the stand-in has no clock"}, [] {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, new_event(), new_event()));
  });
}
