// Device memory: where it begins and ends in space and in time, and who may touch it.
#include "cuda_stand_in/last_words.h"
#include "cuda_stand_in/mistakes.h"
#include "cuda_stand_in/plans.h"

#include <cmath>
#include <csignal>

using mistakes::increment;

TEST_CASE("fresh device memory is NaN") {
  const auto out = same_in_every_plan<std::vector<int>>([] {
    const cudaStream_t stream = new_stream();
    const OnDevice<float> fresh(stream, 3);
    std::vector<int> is_nan;
    for (const float value : fresh.read_back()) is_nan.push_back(std::isnan(value) ? 1 : 0);
    OnDevice<float>(fresh).free();
    return is_nan;
  });
  CHECK(out == std::vector<int>{1, 1, 1});
}

TEST_CASE("host code that touches device memory ends with a sentence") {
  for (const bool write : {false, true}) {
    for (const Plan& plan : all_plans()) {
      INFO(text_of(plan));
      const std::string words = last_words([&] {
        const Session session(plan);
        void* pointer = nullptr;
        check(cudaMalloc(&pointer, 64));
        auto* bytes = static_cast<volatile char*>(pointer);
        if (write) bytes[3] = 1;
        if (!write) std::printf("%d", bytes[3]);
      });
      CHECK_THAT(words, contains("host code touched device memory: byte 3 of device allocation #1 "
                                 "(64 bytes on device 0)"));
    }
  }
}

TEST_CASE("kernels take device memory only") {
  misuse_in_every_plan({"argument 2 of", "increment_kernel", "is no device memory"}, [] {
    const cudaStream_t stream = new_stream();
    const OnDevice<float> out(stream, 4);
    const float on_host[4] = {};
    increment(stream, out.data, on_host, 4);
  });
}

TEST_CASE("a copy past the end is found") {
  misuse_in_every_plan({"cudaMemsetAsync of 17 bytes on stream 1", "past its end"}, [] {
    const cudaStream_t stream = new_stream();
    const OnDevice<float> out(stream, 4);
    check(cudaMemsetAsync(out.data, 0, 17, stream));
    check(cudaStreamSynchronize(stream));
  });
}

TEST_CASE("a kernel that reads past the end of its argument is found") {
  misuse_in_every_plan({"thread (4, 0, 0) reads bytes 16 to 19 of device allocation"}, [] {
    const cudaStream_t stream = new_stream();
    const OnDevice<float> in(stream, 4), out(stream, 5);
    increment(stream, out.data, in.data, 5);
    check(cudaStreamSynchronize(stream));
  });
}

TEST_CASE("memory that is freed before its use ends is found") {
  SECTION("in the order of another stream") {
    misuse_in_every_plan({"cudaFreeAsync on stream 2"}, [] {
      const cudaStream_t stream = new_stream(), other = new_stream();
      OnDevice<float> in(stream, std::vector<float>(64)), out(stream, 64);
      increment(stream, out.data, in.data, 64);
      check(cudaFreeAsync(in.data, other));
      check(cudaStreamSynchronize(stream));
      check(cudaStreamSynchronize(other));
    });
  }
  SECTION("by the host") {
    misuse_in_every_plan({"cudaFree", "cudaMemsetAsync of 16 bytes", "device allocation #1"}, [] {
      const cudaStream_t stream = new_stream();
      void* memory = nullptr;
      check(cudaMalloc(&memory, 16));
      check(cudaMemsetAsync(memory, 0, 16, stream));
      check(cudaFree(memory));
      check(cudaStreamSynchronize(stream));
    });
  }
  SECTION("and used after that") {
    misuse_in_every_plan({"which cudaFreeAsync on stream 1 of device 0 has freed"}, [] {
      const cudaStream_t stream = new_stream();
      const OnDevice<float> out(stream, 4);
      check(cudaFreeAsync(out.data, stream));
      check(cudaMemsetAsync(out.data, 0, 4, stream));
      check(cudaStreamSynchronize(stream));
    });
  }
}

TEST_CASE("memory is usable after its cudaMallocAsync only") {
  misuse_in_every_plan({"cudaMemsetAsync of 4 bytes on stream 2"}, [] {
    const cudaStream_t stream = new_stream(), other = new_stream();
    const OnDevice<float> out(stream, 4);
    check(cudaMemsetAsync(out.data, 0, 4, other));
    check(cudaStreamSynchronize(other));
    check(cudaStreamSynchronize(stream));
  });
}

TEST_CASE("what is freed twice, or never, is found") {
  misuse_in_every_plan({"has freed already"}, [] {
    void* memory = nullptr;
    check(cudaMalloc(&memory, 16));
    check(cudaFree(memory));
    check(cudaFree(memory));
  });
  misuse_in_every_plan({"where no such allocation begins"}, [] {
    void* memory = nullptr;
    check(cudaMalloc(&memory, 16));
    check(cudaFree(static_cast<char*>(memory) + 4));
  });
  misuse_in_every_plan({"device allocation #1 (16 bytes on device 0) was never freed"}, [] {
    void* memory = nullptr;
    check(cudaMalloc(&memory, 16));
  });
}

TEST_CASE("pageable memory in an asynchronous copy, and a wrong kind, are refused") {
  misuse_in_every_plan({"pageable host memory"}, [] {
    const cudaStream_t stream = new_stream();
    const OnDevice<float> out(stream, 1);
    const float value = 1;
    check(cudaMemcpyAsync(out.data, &value, 4, cudaMemcpyHostToDevice, stream));
  });
  misuse_in_every_plan({"kind 2, but its pointers make it kind 1"}, [] {
    void* memory = nullptr;
    check(cudaMalloc(&memory, 4));
    const float value = 1;
    check(cudaMemcpy(memory, &value, 4, cudaMemcpyDeviceToHost));
  });
}

TEST_CASE("cudaMemcpy from pageable memory to a device is refused") {
  misuse_in_every_plan({"cudaMemcpy from pageable host memory", "may return before"}, [] {
    void* memory = nullptr;
    check(cudaMalloc(&memory, 4));
    const float value = 1;
    check(cudaMemcpy(memory, &value, 4, cudaMemcpyHostToDevice));
  });
}

TEST_CASE("cudaMemcpy does not wait for streams") {
  misuse_in_every_plan({"cudaMem"}, [] {
    const cudaStream_t stream = new_stream();
    void* memory = nullptr;
    check(cudaMalloc(&memory, 4));
    check(cudaMemsetAsync(memory, 0, 4, stream));
    float value = 0;
    check(cudaMemcpy(&value, memory, 4, cudaMemcpyDeviceToHost));
    check(cudaStreamSynchronize(stream));
  });
}

TEST_CASE("a kernel reaches another device's memory once it has peer access, and not before") {
  const auto enable = [](bool of_pool) {
    if (of_pool) {
      cudaMemPool_t pool = nullptr;
      check(cudaDeviceGetDefaultMemPool(&pool, 1));
      const cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 0},
                                        cudaMemAccessFlagsProtReadWrite};
      check(cudaMemPoolSetAccess(pool, &access, 1));
    } else {
      check(cudaDeviceEnablePeerAccess(1, 0));
      CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
    }
  };
  const auto run = [&](bool is_of_pool, bool pool_is_enabled, bool peer_is_enabled) {
    check(cudaSetDevice(1));
    const cudaStream_t other = new_stream();
    OnDevice<float> values(other, {1, 2, 3});
    void* in = values.data;
    if (!is_of_pool) {
      check(cudaMalloc(&in, 12));
      check(cudaMemcpyAsync(in, values.data, 12, cudaMemcpyDeviceToDevice, other));
      check(cudaStreamSynchronize(other));
    }
    check(cudaSetDevice(0));
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can == 1);
    if (pool_is_enabled) enable(true);
    if (peer_is_enabled) enable(false);
    const cudaStream_t stream = new_stream();
    OnDevice<float> out(stream, 3);
    increment(stream, out.data, static_cast<const float*>(in), 3);
    const auto result = out.read_back();
    out.free();
    if (!is_of_pool) check(cudaFree(in));
    values.free();
    return result;
  };
  for (const bool of_pool : {false, true}) {
    CHECK(same_in_every_plan<std::vector<float>>([&] { return run(of_pool, of_pool, !of_pool); }) ==
          std::vector<float>{2, 3, 4});
    const char* const remedy = of_pool ? "cudaMemPoolSetAccess" : "cudaDeviceEnablePeerAccess";
    misuse_in_every_plan({"increment", "device 0 cannot reach", remedy},
                         [&] { run(of_pool, !of_pool, of_pool); });
  }
  Plan apart;
  apart.has_peer_access = false;
  Session session(apart);
  int can = 1;
  check(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK(can == 0);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) != cudaSuccess);
  cudaGetLastError();
  session.finish();
}

TEST_CASE("one device may reach no other, and be reached") {
  Session session({.without_peers = 1});
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK(can == 1);
  check(cudaDeviceEnablePeerAccess(1, 0));
  check(cudaSetDevice(1));
  check(cudaDeviceCanAccessPeer(&can, 1, 0));
  CHECK(can == 0);
  CHECK(cudaDeviceEnablePeerAccess(0, 0) != cudaSuccess);
  cudaGetLastError();
  session.finish();
}

TEST_CASE("a device reaches at most eight others") {
  Session session({.devices = 10});
  check(cudaSetDevice(0));
  for (int peer = 1; peer <= 8; ++peer) check(cudaDeviceEnablePeerAccess(peer, 0));
  CHECK(cudaDeviceEnablePeerAccess(9, 0) == cudaErrorTooManyPeers);
  CHECK(cudaDeviceEnablePeerAccess(8, 0) == cudaErrorPeerAccessAlreadyEnabled);
  cudaGetLastError();
  session.finish();
}

TEST_CASE("an event belongs to the device that was current when it was made") {
  misuse_in_every_plan({"cudaEventRecord", "was made on device 0", "stream 1 of device 1"}, [] {
    check(cudaSetDevice(1));
    const cudaStream_t stream = new_stream();
    check(cudaSetDevice(0));
    check(cudaEventRecord(new_event(), stream));
  });
}

TEST_CASE("a device has so much memory and no more") {
  Session session({Mode::lazy, 0, 2, 1000});
  void *first = nullptr, *second = nullptr;
  check(cudaMalloc(&first, 600));
  CHECK(cudaMalloc(&second, 401) == cudaErrorMemoryAllocation);
  CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
  CHECK(std::string(cudaGetErrorString(cudaGetLastError())) == "out of memory");
  CHECK(cudaGetLastError() == cudaSuccess);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  CHECK(free == 400);
  check(cudaSetDevice(1));
  check(cudaMalloc(&second, 1000));
  check(cudaFree(second));
  check(cudaSetDevice(0));
  check(cudaFree(first));
  CHECK_NOTHROW(session.finish());
}

TEST_CASE("devices describe themselves as what kernels are compiled for") {
  const Session session({Mode::lazy, 0, 3});
  int count = 0, value = 0;
  check(cudaGetDeviceCount(&count));
  CHECK(count == 3);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 2));
  CHECK(properties.major * 10 + properties.minor == 90);
  check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  CHECK(value == properties.multiProcessorCount);
  CHECK(cudaSetDevice(3) == cudaErrorInvalidDevice);
  cudaGetLastError();
}
