#include "nn/generate.h"

#include "base/check.h"
#include "base/fixed_math.h"
#include "nn/key_value_cache.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fsdp::nn {

namespace {

/// The token whose share of the probability covers `u` in [0, 1); ties go to the smaller token.
std::int32_t pick(const std::vector<float>& logits, const SamplingOptions& options, double u) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto is_likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  const std::size_t all = logits.size();
  const bool is_greedy = options.temperature == 0;
  const std::size_t kept = is_greedy ? 1
                           : options.top_k == 0
                               ? all
                               : std::min(all, static_cast<std::size_t>(options.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    is_likelier);
  if (is_greedy) return order.front();

  const double best = logits[static_cast<std::size_t>(order.front())];
  std::vector<double> weights(kept);
  for (std::size_t i = 0; i < kept; ++i) {
    weights[i] =
        fixed::exp((logits[static_cast<std::size_t>(order[i])] - best) / options.temperature);
  }
  double left = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];  // rounding may leave a little over
}

}  // namespace

std::vector<std::int32_t> generate(Module& model, std::vector<std::int32_t> prompt, int count,
                                   std::int64_t max_sequence, const SamplingOptions& options,
                                   Generator& generator) {
  FSDP_CHECK(!prompt.empty(), "generate() needs a prompt of at least one token");
  FSDP_CHECK(max_sequence > 0, "generate() needs a context of at least one token, got {}",
             max_sequence);
  FSDP_CHECK(options.temperature >= 0 && std::isfinite(options.temperature),
             "temperature must be 0 or more, but is {}", options.temperature);
  FSDP_CHECK(options.top_k >= 0, "top_k must be 0 (all) or more, but is {}", options.top_k);
  const NoGradScope no_grad;
  KeyValueCache kept(model, std::min(max_sequence, std::ssize(prompt) + count));
  for (int i = 0; i < count; ++i) {
    const bool slides = std::ssize(prompt) > max_sequence;
    if (slides) kept.clear();
    const std::ptrdiff_t context = slides ? std::ssize(prompt) - max_sequence : 0;
    const std::vector<std::int32_t> next(prompt.begin() + context + kept.length(), prompt.end());
    const Variable logits = model(Variable(Tensor::from(next, {1, std::ssize(next)})));
    const Tensor last = logits.data().narrow(1, std::ssize(next) - 1, 1);
    const Tensor wide = Tensor::empty(last.shape());
    ops::copy(wide, last);
    FSDP_CHECK(ops::all_finite(wide.view({wide.numel()})),
               "the model's logits are not finite at token {}, so its parameters are damaged",
               prompt.size());
    const std::uint32_t word = random_word(generator.seed(), generator.reserve(1));
    prompt.push_back(pick(wide.to_vector<float>(), options, word * 0x1p-32));
  }
  return prompt;
}

}  // namespace fsdp::nn
