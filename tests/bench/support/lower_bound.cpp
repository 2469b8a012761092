#include "bench/support/lower_bound.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

namespace fsdp::bench {

LowerBound::LowerBound(const nn::TransformerConfig& config, std::int64_t rows,
                       const std::string& family, int threads)
    : openblas_(family, threads), rows_(rows) {
  const std::int64_t d = config.hidden_size;
  const std::int64_t f = config.intermediate_size;
  const std::int64_t kv = config.effective_kv_heads() * config.head_dim();
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const auto& [out, in] :
         {std::pair{d, d}, {kv, d}, {kv, d}, {d, d}, {f, d}, {f, d}, {d, f}}) {
      add(out, in);
    }
  }
  add(config.vocab_size, d);
}

double LowerBound::step_seconds() {
  const auto begin = std::chrono::steady_clock::now();
  for (Layer& layer : layers_) product(layer, Which::output);
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    product(*layer, Which::weight_grad);
    product(*layer, Which::input_grad);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void LowerBound::add(std::int64_t out, std::int64_t in) {
  const auto size = static_cast<std::size_t>(out * in);
  layers_.push_back({out, in, std::vector<float>(size, 0.01F), std::vector<float>(size)});
  x_.resize(std::max(x_.size(), static_cast<std::size_t>(rows_ * in)), 0.5F);
  y_.resize(std::max(y_.size(), static_cast<std::size_t>(rows_ * out)), 0.5F);
}

void LowerBound::product(Layer& layer, Which which) {
  float* const x = x_.data();
  float* const y = y_.data();
  float* const w = layer.weight.data();
  if (which == Which::output) {
    openblas_.multiply(rows_, layer.out, layer.in, x, false, w, true, y);
  } else if (which == Which::weight_grad) {
    openblas_.multiply(layer.out, layer.in, rows_, y, true, x, false, layer.grad.data());
  } else {
    openblas_.multiply(rows_, layer.in, layer.out, y, false, w, false, x);
    // Repeated products would overflow, and denormals would slow them down.
    std::fill(x_.begin(), x_.end(), 0.5F);
  }
}

}  // namespace fsdp::bench
