// What the parts of a model keep for their backward, in closed form: the A of the memory formula.
#include "autograd/functions.h"
#include "nn/transformer.h"
#include "toy_modules.h"

#include <map>

namespace fsdp::nn {

namespace {

/// Elements, for B sequences of T tokens.
struct Activations {
  std::int64_t b, t, d, f, v, h, g;  // g: width of k and of v
  Activations(const TransformerConfig& c, std::int64_t batch, std::int64_t length)
      : b(batch),
        t(length),
        d(c.hidden_size),
        f(c.intermediate_size),
        v(c.vocab_size),
        h(c.num_attention_heads),
        g(c.effective_kv_heads() * c.head_dim()) {}
  std::int64_t rows() const { return b * t; }
  std::int64_t embedding() const { return rows() * d; }
  /// d wide: normed, q, mixed, middle, normed again, and the output, which the unit after keeps;
  /// k and v; gate, up and hidden; of both norms one number a row; of attention one a row and head.
  std::int64_t block() const { return rows() * (6 * d + 2 * g + 3 * f + 2) + b * h * t; }
  /// normed, logits, and the statistics of the norm.
  std::int64_t head() const { return rows() * (d + v + 1); }
  /// The loss. The gradient of the logits lies over them.
  std::int64_t loss() const { return 1; }
};

/// Activation bytes that appear between a module's states.
struct Watcher : CallObserver {
  std::map<std::string, std::vector<std::int64_t>> alive;  // by path, one number a state
  void on_state(Module& module, CallState) override {
    const Breakdown now = Context::current().tracker().current();
    alive[module.path()].push_back(now[MemoryKind::activation] / 4);
  }
};

}  // namespace

TEST_CASE(
    "activations of embedding, blocks, head and loss are the closed form, and go in backward") {
  TransformerConfig config = TransformerConfig::nano();
  config.num_key_value_heads = GENERATE(0, 1);
  config.tie_word_embeddings = GENERATE(false, true);
  const std::int64_t batch = 3, length = 5;
  Context context({.threads = 2});
  const ContextScope scope(context);
  TransformerLM model(config);
  const Activations a(config, batch, length);
  const Tensor tokens = [&] {
    const AllocationScope data(MemoryKind::temp);
    return Tensor::zeros({batch, length}, DType::int32);
  }();
  Watcher watcher;
  std::int64_t after_loss = 0;
  {
    const CallObserverScope watching(watcher);
    const Variable loss = cross_entropy(model(Variable(tokens)), tokens);
    after_loss = context.tracker().current()[MemoryKind::activation] / 4;
    loss.backward();
  }
  const auto change = [&](const std::string& path, int from, int to) {
    const auto& states = watcher.alive.at(path);
    REQUIRE(states.size() == kCallStates);
    return states[static_cast<std::size_t>(to)] - states[static_cast<std::size_t>(from)];
  };
  CHECK(change("model.embed_tokens", 1, 2) == a.embedding());
  CHECK(change("model.layers.0", 1, 2) == a.block());
  CHECK(change("model.layers.1", 1, 2) == a.block());
  CHECK(after_loss == a.embedding() + 2 * a.block() + a.head() + a.loss());
  // Backward gives as much back: not the output, which went with the unit after, but the input,
  // which is of the same size.
  CHECK(change("model.layers.1", 5, 6) == -a.block());
  CHECK(change("model.layers.0", 5, 6) == -a.block());
  CHECK(context.tracker().current()[MemoryKind::activation] == 0);
  CHECK(watcher.alive.at("model.embed_tokens").back() == 1);  // the loss
}

}  // namespace fsdp::nn
