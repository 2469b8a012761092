// Keys and values that are kept change no bit, cost what was promised, and leave nothing behind.
#include "nn/key_value_cache.h"

#include "nn/generate.h"
#include "nn/transformer.h"
#include "toy_modules.h"

#include <algorithm>
#include <numeric>

namespace fsdp::nn {

namespace cached {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kMost = 140;  // positions: three tiles of keys

/// Grouped queries, heads of another width, scaled positions, tied: each in one of them.
TransformerConfig config_of(int variant) {
  TransformerConfig config{.vocab_size = 31,
                           .hidden_size = 24,
                           .num_hidden_layers = 2,
                           .num_attention_heads = 4,
                           .intermediate_size = 40,
                           .max_position_embeddings = kMost,
                           .initializer_range = 0.4};
  if (variant >= 1) config.num_key_value_heads = 2;
  if (variant >= 1) config.explicit_head_dim = 10;
  if (variant == 2) config.rope_scaling = {.factor = 4, .original_max_position_embeddings = 20};
  config.tie_word_embeddings = variant == 2;
  return config;
}

Ids some_tokens(std::int64_t count) {
  Ids tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(random_word(9, i) % 31);
  }
  return tokens;
}

Tensor logits_of(Module& model, const Ids& tokens, std::int64_t begin, std::int64_t count) {
  const Ids part(tokens.begin() + begin, tokens.begin() + begin + count);
  return model(Variable(Tensor::from(part, {1, count}))).data();
}

/// The same model, which generate() does not know as one that keeps anything.
std::unique_ptr<Toy> disguised(TransformerLM& model) {
  return std::make_unique<Toy>([&model](const Variable& tokens) { return model(tokens); });
}

/// The rows of logits of each forward that `run` causes.
template <class Run>
std::vector<std::int64_t> rows_of_forwards(const TransformerConfig& config, const Run& run) {
  MemoryTracker& tracker = Context::current().tracker();
  tracker.set_logging(true);
  run();
  tracker.set_logging(false);
  std::vector<std::int64_t> rows;
  for (const MemoryTracker::LogEntry& entry : tracker.log()) {
    const bool is_logits = entry.what == MemoryTracker::LogEntry::What::alloc &&
                           entry.owner != nullptr && entry.owner->name == "lm_head";
    if (is_logits) rows.push_back(entry.nbytes / 4 / config.vocab_size);
  }
  return rows;
}

}  // namespace cached

using namespace cached;

TEST_CASE("with kept keys and values, every row of logits has the bits of a whole forward") {
  const int variant = GENERATE(0, 1, 2);
  const DType dtype = GENERATE(DType::float32, DType::bfloat16, DType::float16);
  const int threads = GENERATE(1, 2, 3);
  CAPTURE(variant, name_of(dtype), threads);
  Context context({.threads = threads, .seed = 3});
  const ContextScope scope(context);
  TransformerLM model(config_of(variant));
  model.convert(dtype);
  const NoGradScope no_tape;
  const Ids tokens = some_tokens(kMost);
  const Tensor whole = logits_of(model, tokens, 0, kMost);
  // Token by token over the borders of tiles, and in pieces that begin and end beside them.
  const std::vector<std::int64_t> pieces[] = {
      std::vector<std::int64_t>(kMost, 1), {62, 1, 1, 1, 1, 61, 1, 1, 1, 10}, {7, 66, 17, 50}};
  for (const std::vector<std::int64_t>& counts : pieces) {
    KeyValueCache cache(model, kMost);
    for (const std::int64_t count : counts) {
      const std::int64_t begin = cache.length();
      const Tensor rows = logits_of(model, tokens, begin, count);
      INFO(count << " tokens from " << begin << " on");
      CHECK(ops::equal_bits(rows, whole.narrow(1, begin, count)));
    }
    CHECK(cache.length() == kMost);
  }
}

TEST_CASE("generation with kept keys and values gives the tokens of whole forwards") {
  Context context({.seed = 3});
  const ContextScope scope(context);
  const int variant = GENERATE(0, 1, 2);
  const auto [prompt, count, most] =
      GENERATE(std::tuple(3, 130, 140), std::tuple(3, 30, 9),  // slides after some tokens
               std::tuple(12, 6, 7),                           // from the first one on
               std::tuple(9, 5, 9), std::tuple(1, 4, 1), std::tuple(2, 0, 5));
  CAPTURE(variant, prompt, count, most);
  TransformerLM model(config_of(variant));
  model.convert(GENERATE(DType::float32, DType::bfloat16, DType::float16));
  const auto run = [&, prompt = prompt, count = count, most = most](Module& each) {
    Generator words(5);
    return generate(each, some_tokens(prompt), count, most, {.top_k = 7}, words);
  };
  CHECK(run(model) == run(*disguised(model)));
}

TEST_CASE("a step with kept keys and values runs one row, until the context slides") {
  Context context({.seed = 3});
  const ContextScope scope(context);
  const TransformerConfig config = config_of(1);
  TransformerLM model(config);
  const auto run = [](Module& each) {
    Generator words(5);
    generate(each, {1, 2, 3}, 6, 6, {}, words);
  };
  using Rows = std::vector<std::int64_t>;
  CHECK(rows_of_forwards(config, [&] { run(model); }) == Rows{3, 1, 1, 1, 6, 6});
  CHECK(rows_of_forwards(config, [&] { run(*disguised(model)); }) == Rows{3, 4, 5, 6, 6, 6});
}

TEST_CASE("on the fake device, a step with kept keys and values costs its own row") {
  // Time is floating operations.
  Context context({.device = kFake, .cost_model = CostModel{.ps_per_flop = 1}});
  const ContextScope scope(context);
  const TransformerConfig config = config_of(1);
  TransformerLM model(config);
  const NoGradScope no_tape;
  const auto time_of = [&](std::int64_t count) {
    const std::int64_t before = context.clock()->now();
    model(Variable(Tensor::empty({1, count}, DType::int32)));
    return context.clock()->now() - before;
  };
  const std::int64_t whole = time_of(kMost);
  KeyValueCache cache(model, kMost);
  std::int64_t sum = 0;
  for (std::int64_t t = 0; t < kMost; ++t) sum += time_of(1);
  CHECK(sum == whole);  // each row and each pair of a query and a key once
}

TEST_CASE("kept keys and values take 2 L capacity G D elements, and are freed") {
  Context context({.seed = 3});
  const ContextScope scope(context);
  const TransformerConfig config = config_of(1);
  TransformerLM model(config);
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  model.convert(dtype);
  const NoGradScope no_tape;
  logits_of(model, {1}, 0, 1);  // the scratch of the threads
  const MemoryTracker& tracker = context.tracker();
  const std::int64_t before = tracker.current_total();
  {
    KeyValueCache cache(model, 17);
    CHECK(tracker.current_total() == before);
    for (const std::int64_t count : {3, 1}) {
      logits_of(model, {1, 2, 3}, 0, count);
      CHECK(tracker.current_total() - before ==
            2 * 2 * 17 * config.kv_width() * static_cast<std::int64_t>(size_of(dtype)));
    }
  }
  CHECK(tracker.current_total() == before);
}

TEST_CASE("after the cache has gone, and after clear(), a sequence begins anew") {
  Context context({.seed = 3});
  const ContextScope scope(context);
  TransformerLM model(config_of(1));
  const NoGradScope no_tape;
  const Ids tokens = some_tokens(20);
  const Tensor whole = logits_of(model, tokens, 0, 5);
  {
    KeyValueCache cache(model, 6);
    logits_of(model, tokens, 9, 4);
    cache.clear();
    CHECK(ops::equal_bits(logits_of(model, tokens, 0, 5), whole));

    // A forward that threw has reached only some of the layers.
    const int hook = model.blocks()[1]->register_forward_pre_hook([](Module&) { fail("no"); });
    CHECK_THROWS_AS(logits_of(model, tokens, 5, 1), Error);
    model.blocks()[1]->remove_hook(hook);
    cache.clear();
    CHECK(ops::equal_bits(logits_of(model, tokens, 0, 5), whole));
  }
  CHECK(ops::equal_bits(logits_of(model, tokens, 0, 5), whole));
}

TEST_CASE("what a cache of keys and values refuses") {
  Context context({.seed = 3});
  const ContextScope scope(context);
  TransformerLM model(config_of(0));
  const Ids tokens = some_tokens(150);
  const auto complaint = [&](std::int64_t count, std::int64_t batch = 1) {
    const Ids part(tokens.begin(), tokens.begin() + count * batch);
    return message_of<Error>([&] { model(Variable(Tensor::from(part, {batch, count}))); });
  };
  const auto contains = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  KeyValueCache cache(model, 1000);
  contains(complaint(3), "without a tape");
  const NoGradScope no_tape;
  CHECK(complaint(100).empty());
  contains(complaint(41), "max_position_embeddings = 140, got (1, 41) after 100 tokens");
  contains(complaint(2, 2), "one sequence");
  CHECK(cache.length() == 100);
  contains(message_of<Error>([&] { KeyValueCache(model, 5); }), "already keeps");
  CHECK(complaint(40).empty());

  TransformerLM other(config_of(0));
  KeyValueCache small(other, 5);
  const auto run = [&](std::int64_t count) {
    return message_of<Error>([&] { logits_of(other, tokens, 0, count); });
  };
  CHECK(run(4).empty());
  contains(run(2), "2 tokens after 4 do not fit into a cache of 5");
}

TEST_CASE("a model that cannot continue a sequence keeps nothing") {
  Context context({.seed = 3});
  const ContextScope scope(context);
  TransformerLM model(config_of(0));
  const auto toy = disguised(model);
  const NoGradScope no_tape;
  const Ids tokens = some_tokens(8);
  KeyValueCache cache(*toy, 8);
  logits_of(*toy, tokens, 0, 3);
  CHECK(cache.length() == 0);
  cache.clear();
  CHECK(ops::equal_bits(logits_of(*toy, tokens, 0, 8), logits_of(model, tokens, 0, 8)));
}

}  // namespace fsdp::nn
