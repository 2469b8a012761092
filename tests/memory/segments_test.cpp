// The activations and temporaries of a segment, by themselves: a single process, no sharding.

#include "paper/segments.h"

#include "autograd/functions.h"
#include "memory/real_training.h"
#include "nn/lora.h"
#include "support/catch.h"
#include "support/training.h"

#include <fmt/format.h>

#include <algorithm>

using namespace fsdp;
using namespace fsdp::paper;
using namespace fsdp::testing;

namespace {

struct Sizes {
  nn::TransformerConfig model;
  std::int64_t batch;
  std::int64_t length;
};

std::vector<Sizes> all_sizes() {
  nn::TransformerConfig grouped = nn::TransformerConfig::nano();
  grouped.num_key_value_heads = 1;
  nn::TransformerConfig narrow_ffn = odd_model();
  narrow_ffn.intermediate_size = 3;
  nn::TransformerConfig large_vocabulary = odd_model();
  large_vocabulary.vocab_size = 1001;
  nn::TransformerConfig one_layer = nn::TransformerConfig::nano();
  one_layer.num_hidden_layers = 1;
  nn::TransformerConfig wide_heads = grouped;  // queries wider than rows
  wide_heads.explicit_head_dim = 20;
  nn::TransformerConfig narrow_heads = nn::TransformerConfig::nano();
  narrow_heads.explicit_head_dim = 2;
  return {{nn::TransformerConfig::nano(), 2, 8},
          {grouped, 3, 5},
          {odd_model(), 1, 7},
          {narrow_ffn, 5, 6},
          {large_vocabulary, 2, 1},
          {one_layer, 1, 8},
          {wide_heads, 2, 8},
          {narrow_heads, 2, 8}};
}

/// The highest of a segment's points: A + T.
std::int64_t highest(const std::vector<MemoryPoint>& points) {
  std::int64_t result = 0;
  for (const MemoryPoint& point : points) {
    result = std::max(result, point.activation + point.temp);
  }
  return result;
}

/// A model whose gradients have their bytes before anything runs, so that all that comes and goes
/// is activations and temporaries.
std::shared_ptr<nn::TransformerLM> model_with_gradients(const nn::TransformerConfig& config) {
  auto model = std::make_shared<nn::TransformerLM>(config);
  for (const nn::NamedParameter& each : model->named_parameters()) {
    const AllocationScope scope(MemoryKind::unsharded_grad);
    Variable(each.variable).set_grad(Tensor::zeros(each.variable.shape()));
  }
  return model;
}

std::int64_t moving_bytes(const Breakdown& bytes) {
  return bytes[MemoryKind::activation] + bytes[MemoryKind::temp];
}

/// The segments of a model in forward order, by the names StateRecorder gives them.
std::vector<std::pair<std::string, const SegmentMemory*>> segments(const TapedModel& paper) {
  std::vector<std::pair<std::string, const SegmentMemory*>> result;
  for (const auto& segment : paper.segments) {
    result.emplace_back(fmt::format("model.layers.{}", result.size() - 1), segment.get());
  }
  result.front().first = "model.embed_tokens";
  result.back().first = "model.norm+lm_head";
  return result;
}

constexpr CostModel kMachine{.ps_per_flop = 3, .ps_per_flop_16 = 2, .ps_per_byte = 7};

/// A micro-batch of this model, forward and backward on the fake device.
std::int64_t ps_of_engine(const nn::TransformerConfig& config, const MemoryOptions& options) {
  Context context({.device = kFake, .cost_model = kMachine});
  const ContextScope scope(context);
  nn::TransformerLM model(config);
  const optim::Recipe& recipe = options.recipe;
  if (recipe.has_lora()) nn::add_lora(model, recipe.lora);
  const DType dtype = recipe.precision.param_dtype_for(DType::float32);
  for (nn::NamedParameter& each : model.named_parameters()) {
    each.variable.set_requires_grad(recipe.trains(each.path));
    if (each.variable.data().dtype() != dtype) each.variable.convert(dtype);
  }
  const Shape shape{options.batch, options.length_of(config)};
  const std::int64_t begin = context.now();
  const Variable logits = model(Variable(Tensor::empty(shape, DType::int32)));
  cross_entropy(logits, Tensor::empty(shape, DType::int32)).backward();
  return context.now() - begin;
}

std::int64_t ps_on_paper(const nn::TransformerConfig& config, const MemoryOptions& options) {
  VirtualClock clock(kMachine);
  const auto add = [&](const SegmentMemory& segment) {
    for (const Kernel& each : segment.kernels.forward) clock.compute(each.cost);
    for (const Kernel& each : segment.kernels.backward) clock.compute(each.cost);
  };
  const TapedModel model = taped_model(config, options);
  for (const auto& segment : model.segments) add(*segment);
  add(model.loss);
  return clock.now();
}

}  // namespace

TEST_CASE("A tape calls the engine's kernels, whatever is frozen, and with LoRA") {
  const std::vector<std::vector<std::string>> frozen = {
      {},
      {"model.embed_tokens"},
      {"model.layers.0."},
      {"model.embed_tokens", "model.layers.0.", "model.layers.1.self_attn.q_proj"},
      {"model.layers.1.mlp", "model.norm"}};
  const std::vector<std::vector<std::string>> targets = {
      {"q_proj", "v_proj"}, {"down_proj", "o_proj"}, {"model.layers.1.mlp.gate_proj"}};
  for (const Sizes& sizes : all_sizes()) {
    for (const bool is_tied : {false, true}) {
      nn::TransformerConfig config = sizes.model;
      config.tie_word_embeddings = is_tied;
      MemoryOptions options;
      options.batch = sizes.batch;
      options.length = sizes.length;
      if (is_tied) options.recipe.precision.param_dtype = DType::bfloat16;
      CAPTURE(config.hidden_size, config.num_hidden_layers, is_tied);
      for (const auto& each : frozen) {
        CAPTURE(each);
        options.recipe.frozen = each;
        CHECK(ps_on_paper(config, options) == ps_of_engine(config, options));
      }
      options.recipe.frozen = {};
      options.recipe.lora.rank = 3;
      for (const auto& each : targets) {
        if (config.num_hidden_layers == 1) continue;
        CAPTURE(each);
        options.recipe.lora.targets = each;
        CHECK(ps_on_paper(config, options) == ps_of_engine(config, options));
      }
    }
  }
}

TEST_CASE("A segment enters, peaks and leaves as on paper") {
  for (const Sizes& sizes : all_sizes()) {
    for (const bool is_tied : {false, true}) {
      nn::TransformerConfig config = sizes.model;
      config.tie_word_embeddings = is_tied;
      CAPTURE(config.hidden_size, config.intermediate_size, sizes.batch, sizes.length, is_tied);
      Context context({.threads = 1 + static_cast<int>(sizes.batch % 2)});
      ContextScope scope(context);
      context.pool();
      MemoryTracker& tracker = context.tracker();
      const auto model = model_with_gradients(config);
      const TapedModel paper =
          taped_model(config, {.recipe = {}, .batch = sizes.batch, .length = sizes.length});

      nn::TransformerConfig batch_config = config;
      batch_config.max_position_embeddings = sizes.length;
      const std::int64_t before = tracker.current_total();
      const MicroBatch micro = make_micro_batch(batch_config, sizes.batch, 1, 0, 0);
      CHECK(tracker.current_total() - before == paper.data);
      const std::int64_t fixed = tracker.current_total();
      const std::int64_t fixed_moving = moving_bytes(tracker.current());

      StateRecorder recorder(*model, Context::current().tracker());
      const nn::CallObserverScope observed(recorder);
      const auto named = segments(paper);
      const auto module_peak = [&](const std::string& name) {
        return tracker.module_peaks().at(name.starts_with("model.norm") ? "" : name) - fixed;
      };

      tracker.reset_peak();
      const Variable loss = cross_entropy((*model)(Variable(micro.tokens)), micro.targets);
      std::map<std::pair<std::string, nn::CallState>, std::int64_t> held;
      for (const MemorySnapshot& each : recorder.take()) {
        held[{each.module, each.state}] = moving_bytes(each.bytes) - fixed_moving;
      }
      std::int64_t waiting = 0;  // what the segments before keep
      for (const auto& [name, segment] : named) {
        CAPTURE(name);
        CHECK(held.at({name, nn::CallState::before_pre_forward}) ==
              waiting + segment->forward.front().activation);
        CHECK(held.at({name, nn::CallState::after_post_forward}) ==
              waiting + segment->forward.back().activation);
        CHECK(module_peak(name) == waiting + highest(segment->forward));
        waiting += segment->kept();
      }
      CHECK(tracker.current_total() - fixed == waiting + paper.loss.kept() + paper.loss_value);

      tracker.reset_peak();
      loss.backward();
      held.clear();
      for (const MemorySnapshot& each : recorder.take()) {
        held[{each.module, each.state}] = moving_bytes(each.bytes) - fixed_moving;
      }
      for (auto each = named.rbegin(); each != named.rend(); ++each) {
        const auto& [name, segment] = *each;
        waiting -= segment->kept();
        const std::int64_t rest = waiting + paper.loss_value;
        CAPTURE(name);
        const MemoryPoint& entry = segment->backward.front();
        const MemoryPoint& exit = segment->backward.back();
        CHECK(held.at({name, nn::CallState::before_pre_backward}) ==
              rest + entry.activation + entry.temp);
        CHECK(held.at({name, nn::CallState::after_post_backward}) ==
              rest + exit.activation + exit.temp);
        // The head shares its path with the root, which is active to the end: no peak of its own.
        if (!name.starts_with("model.norm")) {
          CHECK(module_peak(name) == rest + highest(segment->backward));
        }
      }
      CHECK(waiting == 0);
      CHECK(tracker.current_total() - fixed == paper.loss_value);
    }
  }
}

TEST_CASE("A single process holds what the formula says, at every state and at the peaks") {
  for (const Sizes& sizes : all_sizes()) {
    for (const int threads : {1, 2}) {
      MemoryCase test_case{.model = sizes.model, .options = {}};
      test_case.model.tie_word_embeddings = threads == 2;
      test_case.options.recipe.strategy = Strategy::single;
      test_case.options.batch = sizes.batch;
      test_case.options.length = sizes.length;
      test_case.options.recipe.micro_steps = 3;
      test_case.options.threads = threads;
      test_case.options.recipe.clip = threads == 1 ? 1 : 0;
      CHECK(difference(test_case) == "");
    }
  }
}

TEST_CASE("What a block keeps is the sum in the documentation") {
  const nn::TransformerConfig config = odd_model();
  const std::int64_t rows = 3 * 7;
  const std::int64_t x = 4 * rows * 20, kv = 4 * rows * 10, f = 4 * rows * 51;
  const TapedModel paper = taped_model(config, {.recipe = {}, .batch = 3, .length = 7});
  const SegmentMemory &block = *paper.segments[1], &head = *paper.segments.back();
  CHECK(block.kept() == 6 * x + 2 * kv + 3 * f + 4 * rows * 10 + 2 * 4 * rows);
  CHECK(block.forward.back().activation == block.kept() + x);
  CHECK(block.backward.back().activation == 0);
  CHECK(block.backward.back().temp == x);
  CHECK(head.kept() == 2 * x + 4 * rows);
  CHECK(paper.loss.kept() == 4 * rows * 37);
}
