// What is put around a module's forward, or around its whole call.
#include "nn/transformer.h"
#include "toy_modules.h"

namespace fsdp::nn {

namespace {

CallWrapper logging(Lines& log, const std::string& name) {
  return [&log, name](Module& module, const Variable& x, const Call& call) {
    log.push_back(name + " " + module.path() + " begins");
    Variable y = call(x);
    log.push_back(name + " ends");
    return y;
  };
}

}  // namespace

TEST_CASE("a wrapper of forward is inside the hooks, one of the call is outside") {
  Lines log;
  Toy root;
  auto a = root.child("a", std::make_shared<Gain>());
  root.set_forward([&](const Variable& x) { return (*a)(x); });
  log_hooks(*a, log, "a");
  a->wrap_forward(logging(log, "inner"));
  a->wrap_call(logging(log, "outer"));
  sum(root(input())).backward();
  CHECK(log == Lines{"outer a begins", "pre forward a", "inner a begins", "inner ends", "forward a",
                     "outer ends", "pre backward a", "backward a"});

  a->wrap_forward(nullptr);
  a->wrap_call(nullptr);
  log.clear();
  root(input());
  CHECK(log == Lines{"pre forward a", "forward a"});
}

TEST_CASE("a wrapper may replace the result, and leave out the call") {
  Gain gain;
  gain.wrap_forward([](Module&, const Variable& x, const Call&) { return scale(x, 3); });
  CHECK(gain(input({1, 2})).data().to_vector<float>() == std::vector<float>{3, 6});
}

// The norm in the middle of a block computes the sum that it reads, unless something is around it.
TEST_CASE("a wrapper in a block gets an input whose elements are there") {
  Context context({.seed = 3});
  const ContextScope scope(context);
  TransformerLM model(TransformerConfig::nano());
  const Variable tokens(Tensor::zeros({2, 4}, DType::int32));
  const std::vector<float> expected = model(tokens).data().to_vector<float>();
  Module& norm = *model.find("model.layers.0.post_attention_layernorm");
  std::vector<std::vector<float>> inputs;
  const CallWrapper reading = [&](Module&, const Variable& x, const Call& call) {
    inputs.push_back(x.data().to_vector<float>());
    Variable y = call(x);
    inputs.push_back(x.data().to_vector<float>());
    return y;
  };
  norm.wrap_forward(reading);
  CHECK(model(tokens).data().to_vector<float>() == expected);
  norm.wrap_forward(nullptr);
  norm.wrap_call(reading);
  CHECK(model(tokens).data().to_vector<float>() == expected);
  REQUIRE(inputs.size() == 4);
  for (const auto& input : inputs) CHECK(input == inputs.back());
}

TEST_CASE("what a kept forward allocates and records belongs to its module") {
  Context context;
  const ContextScope scope(context);
  Toy root;
  auto a = root.child("a", std::make_shared<Gain>());
  root.set_forward([&](const Variable& x) { return (*a)(x); });
  Call kept;
  a->wrap_forward([&](Module&, const Variable& x, const Call& call) {
    kept = call;
    return call(x);
  });
  root(input());
  const Variable y = kept(input({1, 2}, true));
  REQUIRE(y.data().storage()->owner() != nullptr);
  CHECK(y.data().storage()->owner()->name == "a");
  CHECK(CallFrameScope::current() == nullptr);

  std::string owner_in_backward;
  Variable(a->weight()).set_grad_buffer(Tensor::zeros({2}));
  Variable(a->weight()).register_post_accumulate_grad_hook([&](const Variable&) {
    for (const auto& [name, nbytes] : context.tracker().by_owner()) owner_in_backward += name + " ";
  });
  sum(y).backward();
  CHECK(a->weight().grad().to_vector<float>() == std::vector<float>{1, 2});
  CHECK_THAT(owner_in_backward, contains("a"));
}

TEST_CASE("a slot holds one wrapper") {
  Toy root;
  auto a = root.child("a", std::make_shared<Gain>());
  const CallWrapper wrapper = [](Module&, const Variable& x, const Call& call) { return call(x); };
  a->wrap_forward(wrapper);
  a->wrap_call(wrapper);
  CHECK_THROWS_WITH(a->wrap_forward(wrapper),
                    contains("something is around the forward of module 'a' already"));
  CHECK_THROWS_WITH(a->wrap_call(wrapper),
                    contains("something is around the calls of module 'a' already"));
}

}  // namespace fsdp::nn
