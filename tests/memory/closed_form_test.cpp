// The sums of the theory (DESIGN: memory), written out once more in their closed form, against the
// walk through the schedule: reshard always, one reduction a micro-step, untied.

#include "paper/memory_formula.h"

#include "base/types.h"
#include "memory/real_training.h"
#include "paper/segments.h"
#include "support/catch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

using namespace fsdp;
using namespace fsdp::paper;
using namespace fsdp::testing;

namespace {

/// One rank's memory by the closed form. Units: embedding, blocks, head; k counts from 0.
class ClosedForm {
 public:
  ClosedForm(const nn::TransformerConfig& config, const MemoryOptions& options)
      : paper_(taped_model(config, options)),
        depth_(static_cast<std::size_t>(options.recipe.sharding.prefetch_depth)) {
    const std::int64_t d = config.hidden_size;
    const std::int64_t kv = config.effective_kv_heads() * config.head_dim();
    const std::int64_t block = 2 * d * d + 2 * d * kv + 3 * d * config.intermediate_size + 2 * d;
    u_.push_back(config.vocab_size * d);
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) u_.push_back(block);
    u_.push_back(config.vocab_size * d + d);
    for (std::int64_t& u : u_) {
      n_.push_back((u + options.recipe.ranks - 1) / options.recipe.ranks);
      u = n_.back() * options.recipe.ranks;  // padded
    }
    for (const auto& segment : paper_.segments) segments_.push_back(segment.get());
    // (p_s + o)·Σ n, the tables, the threads' scratch, the micro-batch.
    fixed_ = 4 * (1 + options.recipe.optimizer.states()) * sum(n_, 0, n_.size()) +
             4 * config.max_position_embeddings * config.head_dim() +
             options.threads * static_cast<std::int64_t>(kScratchBytes) + paper_.data;
  }

  /// p_c·Σ(u_k … u_{k+d}) + A_k, at the end of unit k's forward; g_s·pop(m)·Σ n.
  std::int64_t forward_peak(int m) const {
    std::int64_t highest = 0;
    for (std::size_t k = 0; k < u_.size(); ++k) {
      const std::int64_t tape = kept(k) + segments_[k]->forward.back().activation;
      highest = std::max(highest, 4 * sum(u_, k, k + depth_ + 1) + tape);
    }
    // The loss comes last, and has one number a row while it is computed; the last unit is still
    // there.
    const std::int64_t rows = paper_.data / (2 * 4);
    const std::int64_t loss = kept(u_.size()) + paper_.loss.kept() + 4 * rows + paper_.loss_value;
    highest = std::max(highest, 4 * u_.back() + loss);
    return fixed_ + 4 * pop(m) * sum(n_, 0, n_.size()) + highest;
  }

  /// p_c·Σ(u_{k−d} … u_k) + g_c·u_k + g_r·u_{k+1} + A_k + T_k, with the sharded gradients.
  std::int64_t backward_peak(int m) const {
    const std::int64_t all = sum(n_, 0, n_.size());
    std::int64_t highest =
        4 * u_.back() + 4 * pop(m) * all + kept(u_.size()) + paper_.loss.kept() + 4;
    for (std::size_t k = 0; k < u_.size(); ++k) {
      std::int64_t most = 0;
      for (const MemoryPoint& point : segments_[k]->backward) {
        most = std::max(most, point.activation + point.temp);
      }
      const std::size_t first = k < depth_ ? 0 : k - depth_;
      std::int64_t bytes = 4 * sum(u_, first, k + 1) + 4 * u_[k] + kept(k) + most;
      bytes += 4 * pop(m) * sum(n_, 0, k + 2) + 4 * pop(m + 1) * sum(n_, k + 2, n_.size());
      if (k + 1 < u_.size()) bytes += 4 * u_[k + 1] + 4 * n_[k + 1];  // in flight, and its leaf
      highest = std::max(highest, bytes);
    }
    return fixed_ + paper_.loss_value + highest;
  }

 private:
  static int pop(int m) { return std::popcount(static_cast<unsigned>(m)); }
  static std::int64_t sum(const std::vector<std::int64_t>& values, std::size_t begin,
                          std::size_t end) {
    std::int64_t total = 0;
    for (std::size_t i = begin; i < std::min(end, values.size()); ++i) total += values[i];
    return total;
  }
  /// What the segments before k keep for their backward.
  std::int64_t kept(std::size_t k) const {
    std::int64_t total = 0;
    for (std::size_t j = 0; j < k; ++j) total += segments_[j]->kept();
    return total;
  }

  TapedModel paper_;
  std::size_t depth_;
  std::vector<std::int64_t> u_, n_;
  std::vector<const SegmentMemory*> segments_;
  std::int64_t fixed_;
};

}  // namespace

TEST_CASE("The closed form and the walk through the schedule agree") {
  for (const auto& config : {nn::TransformerConfig::nano(), odd_model(),
                             nn::TransformerConfig::tiny(), nn::TransformerConfig::llama_2b()}) {
    for (const int world_size : {1, 2, 3, 8, 1000}) {
      for (const int depth : {0, 1, 2}) {
        MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
        options.recipe.ranks = world_size;
        options.batch = 4;
        options.recipe.micro_steps = 4;
        options.recipe.sharding.prefetch_depth = depth;
        CAPTURE(config.hidden_size, world_size, depth);
        const ClosedForm closed(config, options);
        const StepMemory step = MemoryFormula(config, options).step(1);
        for (int m = 0; m < options.recipe.micro_steps; ++m) {
          const MicroStepMemory& micro_step = step.micro_steps[static_cast<std::size_t>(m)];
          CHECK(micro_step.forward_peak.total() == closed.forward_peak(m));
          CHECK(micro_step.backward_peak.total() == closed.backward_peak(m));
        }
      }
    }
  }
}

TEST_CASE("Options that do not fit together are refused") {
  const auto message = [](auto change) {
    MemoryOptions options{.recipe = {.strategy = optim::Strategy::fsdp}};
    options.recipe.ranks = 4;
    change(options);
    return message_of<Error>([&] { MemoryFormula(nn::TransformerConfig::nano(), options); });
  };
  CHECK(message([](MemoryOptions&) {}) == "");
  for (const int ranks : {0, 1, 3, 4}) {
    CHECK_THAT(message([&](MemoryOptions& o) {
                 o.recipe.sharding.reshard_after_forward = ReshardAfterForward::within(ranks);
               }),
               contains(fmt::format("is {}, must be true, false", ranks)));
  }
  CHECK_THAT(message([](MemoryOptions& o) { o.length = 9; }), contains("9 tokens"));
  CHECK_THAT(message([](MemoryOptions& o) { o.recipe.micro_steps_per_reduction = 2; }),
             contains("must divide"));
  CHECK_THAT(message([](MemoryOptions& o) { o.recipe.strategy = Strategy::single; }),
             contains("one process"));
}
