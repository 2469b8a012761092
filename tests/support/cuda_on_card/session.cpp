// What tests on the stand-in ask of it, for a program that runs on a card: there is one plan, the
// card's own, and nobody counts or finds anything but what CUDA reports. Tests that need more have
// the tag [stand-in], and those that need several cards [cards].
#include "support/cuda_on_host/session.h"

#include "support/cuda_on_host/environment.h"
#include "support/cuda_on_host/misuse.h"

#include <cuda_runtime.h>

namespace cuda_on_host {

Session::Session(const Plan&) { cudaGetLastError(); }

Session::~Session() = default;

void Session::finish() {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) throw Misuse(cudaGetErrorString(error));
}

std::int64_t host_waits() { return 0; }

Traffic traffic() { return {}; }

std::map<std::string, std::int64_t> launches() { return {}; }

std::int64_t attributes_set() { return 0; }

std::set<int> opened_devices() { return {}; }

std::optional<Plan> requested_plan() { return std::nullopt; }

void watch_driver(std::function<void(std::string_view)>) {}

void break_links() { throw Misuse("the links of a card cannot be broken"); }

}  // namespace cuda_on_host
