#include "bench/support/measure.h"

#include <algorithm>
#include <chrono>

namespace fsdp::bench {

double best_time(const std::function<void()>& call, double budget) {
  using Clock = std::chrono::steady_clock;
  call();
  double best = 1e9;
  const auto begin = Clock::now();
  for (int runs = 0; runs < 4 || Clock::now() - begin < std::chrono::duration<double>(budget);
       ++runs) {
    const auto start = Clock::now();
    call();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Tensor values(const Shape& shape, double scale) {
  Tensor t = Tensor::empty(shape);
  auto* to = t.data<float>();
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    to[i] = static_cast<float>(scale) * (static_cast<float>(i * 7919 % 2003) / 1001 - 1);
  }
  return t;
}

}  // namespace fsdp::bench
