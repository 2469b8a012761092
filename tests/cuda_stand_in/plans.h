/// @file
/// What every test of the stand-in goes through: each mode, and a list of seeds. The library's
/// tests go through fewer plans, or through the one that the variable CUDA_ON_HOST names.
#pragma once

#include "cuda_stand_in/device_checks.h"
#include "support/catch.h"
#include "support/cuda_on_host/environment.h"
#include "support/cuda_on_host/misuse.h"
#include "support/cuda_on_host/session.h"

#include <functional>
#include <string>
#include <vector>

using cuda_on_host::Misuse;
using cuda_on_host::Mode;
using cuda_on_host::Plan;
using cuda_on_host::Session;

inline std::vector<Plan> all_plans() {
  std::vector<Plan> plans;
  for (const Mode mode : {Mode::lazy, Mode::eager, Mode::random}) {
    for (const std::uint64_t seed : {0U, 1U, 2U, 3U, 17U}) plans.push_back({mode, seed});
  }
  return plans;
}

/// `usual` with the mode and the seed that CUDA_ON_HOST names, if it is set. For what must hold
/// under every plan: `make test-cuda` names one after the other.
inline Plan requested_or(Plan usual) {
  if (const auto requested = cuda_on_host::requested_plan()) {
    usual.mode = requested->mode;
    usual.seed = requested->seed;
  }
  return usual;
}
inline std::vector<Plan> requested_or(std::vector<Plan> usual) {
  if (cuda_on_host::requested_plan()) usual = {requested_or(usual.front())};
  return usual;
}

inline std::string text_of(const Plan& plan) {
  const char* modes[] = {"lazy", "eager", "random"};
  return std::string(modes[static_cast<int>(plan.mode)]) + ", seed " + std::to_string(plan.seed);
}

/// Runs `program` under every plan. It must end well, and return the same under all of them.
template <class Result>
Result same_in_every_plan(const std::function<Result()>& program) {
  std::vector<Result> results;
  for (const Plan& plan : all_plans()) {
    INFO(text_of(plan));
    Session session(plan);
    results.push_back(program());
    CHECK_NOTHROW(session.finish());
  }
  for (std::size_t i = 1; i < results.size(); ++i) {
    INFO(text_of(all_plans()[i]));
    CHECK(results[i] == results[0]);
  }
  return results[0];
}

/// Runs `program` under every plan. Each time it must be a Misuse whose message contains `parts`.
inline void misuse_in_every_plan(const std::vector<std::string>& parts,
                                 const std::function<void()>& program) {
  for (const Plan& plan : all_plans()) {
    INFO(text_of(plan));
    Session session(plan);
    const std::string message = message_of<Misuse>([&] {
      program();
      session.finish();
    });
    for (const std::string& part : parts) CHECK_THAT(message, contains(part));
  }
}

/// Bytes of a device that free themselves through a stream.
template <class T>
struct OnDevice {
  OnDevice(cudaStream_t on, std::size_t count) : stream(on), n(count) {
    void* pointer = nullptr;
    check(cudaMallocAsync(&pointer, n * sizeof(T), stream));
    data = static_cast<T*>(pointer);
  }
  OnDevice(cudaStream_t on, const std::vector<T>& values) : OnDevice(on, values.size()) {
    void* pinned = nullptr;
    check(cudaMallocHost(&pinned, n * sizeof(T)));
    std::copy(values.begin(), values.end(), static_cast<T*>(pinned));
    check(cudaMemcpyAsync(data, pinned, n * sizeof(T), cudaMemcpyHostToDevice, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaFreeHost(pinned));
  }
  std::vector<T> read_back() const {
    void* pinned = nullptr;
    check(cudaMallocHost(&pinned, n * sizeof(T)));
    check(cudaMemcpyAsync(pinned, data, n * sizeof(T), cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    const std::vector<T> values(static_cast<T*>(pinned), static_cast<T*>(pinned) + n);
    check(cudaFreeHost(pinned));
    return values;
  }
  void free() {
    check(cudaFreeAsync(data, stream));
    check(cudaStreamSynchronize(stream));
  }
  cudaStream_t stream;
  std::size_t n;
  T* data = nullptr;
};

inline cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
inline cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}
