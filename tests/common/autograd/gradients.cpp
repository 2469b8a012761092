// Every differentiable function against finite differences.
#include "check_gradients.h"

namespace fsdp {

TEST_CASE("linear: gradients of input, weight and bias") {
  const Variable x = random_leaf({2, 3, 4}, 1);
  const Variable w = random_leaf({5, 4}, 2);
  const Variable b = random_leaf({5}, 3);
  check_gradients([&] { return weigh(linear(x, w, b)); }, {x, w, b});
  check_gradients([&] { return weigh(linear(x, w)); }, {x, w});
}

TEST_CASE("linear: a frozen weight or input is left out") {
  const Variable x = random_leaf({3, 4}, 1);
  const Variable w = random_leaf({5, 4}, 2);
  const Variable frozen_w(w.data());
  check_gradients([&] { return weigh(linear(x, frozen_w)); }, {x});
  CHECK_FALSE(frozen_w.grad().is_defined());
  check_gradients([&] { return weigh(linear(x.detach(), w)); }, {w});
}

TEST_CASE("embedding: repeated and unused tokens") {
  const Variable table = random_leaf({5, 3}, 1);
  const Tensor tokens = int_tensor({1, 3, 1, 0}, {2, 2});
  check_gradients([&] { return weigh(embedding(table, tokens)); }, {table});
  CHECK(table.grad().narrow(0, 2, 1).to_vector<double>() == std::vector<double>{0, 0, 0});
}

TEST_CASE("rms_norm: gradients of input and weight") {
  const Variable x = random_leaf({2, 3, 8}, 1);
  const Variable w = random_leaf({8}, 2);
  check_gradients([&] { return weigh(rms_norm(x, w, 1e-5)); }, {x, w});
  check_gradients([&] { return weigh(rms_norm(x, w.detach(), 1e-5)); }, {x});
  check_gradients([&] { return weigh(rms_norm(x.detach(), w, 1e-5)); }, {w});
}

namespace {

/// Attention over fresh q, k, v, as a model calls it: q and k may be rotated in place.
struct AttentionCase {
  int heads, kv_heads;
  std::int64_t batch = 2, length = 5, width = 4;
  Variable q = random_leaf({batch, length, heads* width}, 1);
  Variable k = random_leaf({batch, length, kv_heads* width}, 2);
  Variable v = random_leaf({batch, length, kv_heads* width}, 3);
  Tensor cos = Tensor::empty({8, width / 2}, DType::float64);
  Tensor sin = Tensor::empty({8, width / 2}, DType::float64);

  AttentionCase(int h, int g) : heads(h), kv_heads(g) { ops::rope_tables(cos, sin, 100); }
  Variable run() const {
    return weigh(rope_attention(scale(q, 1), scale(k, 1), scale(v, 1), heads, kv_heads, cos, sin));
  }
};

}  // namespace

TEST_CASE("rope_attention: full and grouped-query") {
  const auto [heads, kv_heads] = GENERATE(std::pair{2, 2}, std::pair{4, 2}, std::pair{3, 1});
  const AttentionCase attention(heads, kv_heads);
  check_gradients([&] { return attention.run(); }, {attention.q, attention.k, attention.v});
}

TEST_CASE("rope_attention: v needs a gradient, q and k do not") {
  AttentionCase attention(2, 1);
  attention.q.set_requires_grad(false);
  attention.k.set_requires_grad(false);
  check_gradients([&] { return attention.run(); }, {attention.v});
}

TEST_CASE("rope_attention: v is used twice, so its gradient is added to") {
  const AttentionCase attention(2, 2);
  check_gradients(
      [&] {
        const Variable v = scale(attention.v, 1);
        const Variable out = rope_attention(scale(attention.q, 1), scale(attention.k, 1), v, 2, 2,
                                            attention.cos, attention.sin);
        return weigh(multiply(out, v));
      },
      {attention.q, attention.k, attention.v});
}

TEST_CASE("swiglu: in place over its inputs, and aside when they are held") {
  const Variable a = random_leaf({3, 4}, 1);
  const Variable b = random_leaf({3, 4}, 2);
  check_gradients([&] { return weigh(swiglu(scale(a, 1), scale(b, 1))); }, {a, b});
  check_gradients([&] { return weigh(swiglu(a, b)); }, {a, b});
  check_gradients([&] { return weigh(swiglu(a, a)); }, {a});
  check_gradients(
      [&] {
        const Variable gate = scale(a, 1);
        return weigh(multiply(swiglu(gate, scale(b, 1)), gate));
      },
      {a, b});
}

TEST_CASE("elementwise functions") {
  const Variable x = random_leaf({2, 5}, 1);
  const Variable y = random_leaf({2, 5}, 2);
  check_gradients([&] { return weigh(add(x, y)); }, {x, y});
  check_gradients([&] { return weigh(multiply(x, y)); }, {x, y});
  check_gradients([&] { return weigh(relu(x)); }, {x});
  check_gradients([&] { return weigh(tanh(x)); }, {x});
  check_gradients([&] { return weigh(scale(x, -2.5)); }, {x});
  check_gradients([&] { return sum(x); }, {x});
  check_gradients([&] { return weigh(reshape(x, {5, 2})); }, {x});
}

TEST_CASE("cross_entropy: gradients of the logits") {
  const Variable logits = random_leaf({2, 3, 7}, 1);
  const Tensor targets = int_tensor({0, 6, 3, 3, 1, 2}, {2, 3});
  check_gradients([&] { return cross_entropy(logits, targets); }, {logits});
  check_gradients([&] { return cross_entropy(scale(logits, 3), targets); }, {logits});
  check_gradients([&] { return scale(cross_entropy(scale(logits, 3), targets), 7); }, {logits});
}

TEST_CASE("mse_loss") {
  const Variable x = random_leaf({2, 3}, 1);
  const Tensor y = random_tensor({2, 3}, 2);
  check_gradients([&] { return mse_loss(x, y); }, {x});
}

TEST_CASE("x, y of the wrong shape are refused with both shapes") {
  const Variable x = random_leaf({2, 3}, 1);
  const Variable y = random_leaf({3, 2}, 2);
  const std::string message = message_of<Error>([&] { add(x, y); });
  CHECK(message.find("(2, 3)") != std::string::npos);
  CHECK(message.find("(3, 2)") != std::string::npos);
  CHECK_THROWS_AS(multiply(x, y), Error);
  CHECK_THROWS_AS(linear(x, random_leaf({5, 2}, 3)), Error);
  CHECK_THROWS_AS(cross_entropy(x, int_tensor({0}, {1})), Error);
  CHECK_THROWS_AS(mse_loss(x, y.data()), Error);
}

}  // namespace fsdp
