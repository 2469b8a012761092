// The tree: paths, parameters, ties, buffers, initialization.
#include "nn/module.h"

#include "toy_modules.h"

namespace fsdp::nn {

TEST_CASE("paths join the non-empty names, whatever order the tree is built in") {
  Toy root;
  auto inner = std::make_shared<Toy>();
  inner->child("proj.a", std::make_shared<Gain>());
  inner->parameter("scale", {1});
  root.child("model.layers.0", inner);
  root.child("", std::make_shared<Toy>())->child("head", std::make_shared<Gain>());

  CHECK(paths_of(root.named_parameters()) ==
        Lines{"model.layers.0.scale", "model.layers.0.proj.a.weight", "head.weight"});
  CHECK(root.find("model.layers.0.proj.a") == inner->children()[0].get());
  CHECK(root.find("nowhere") == nullptr);
  CHECK(root.find("")->path().empty());
  CHECK(inner->name() == "model.layers.0");
  CHECK(inner->parent() == &root);
  CHECK(root.modules().size() == 5);
  CHECK(root.parameter_count() == 5);
}

TEST_CASE("a tied parameter counts once, under its first path") {
  Toy root;
  auto first = root.child("first", std::make_shared<Gain>());
  auto second = root.child("second", std::make_shared<Toy>());
  second->share("tied", first->weight());
  CHECK(paths_of(root.named_parameters()) == Lines{"first.weight"});
  CHECK(paths_of(root.named_parameters_with_ties()) == Lines{"first.weight", "second.tied"});
  CHECK(root.named_parameters_with_ties()[1].module == second.get());
  CHECK(root.parameter_count() == 2);
}

TEST_CASE("a module has one parent") {
  Toy a, b;
  auto child = a.child("child", std::make_shared<Gain>());
  CHECK(message_of<Error>([&] { b.child("other", child); }).find("child") != std::string::npos);
  CHECK_THROWS_AS(b.child("null", std::shared_ptr<Gain>()), Error);
}

TEST_CASE("parameters count as UNSHARDED_PARAM and carry their name") {
  Context context;
  const ContextScope scope(context);
  Gain gain(8);
  CHECK(context.tracker().current()[MemoryKind::unsharded_param] == 32);
  CHECK(context.tracker().current()[MemoryKind::activation] == 0);
  REQUIRE(gain.weight().data().storage()->owner() != nullptr);
  CHECK(gain.weight().data().storage()->owner()->name == "weight");
  CHECK(gain.weight().requires_grad());
}

TEST_CASE("initialization draws from the generator in order, on every device alike") {
  const auto build = [](Device device, std::uint64_t seed) {
    Context context({.seed = seed});
    const ContextScope scope(context);
    const DeviceScope where(device);
    Toy root;
    root.child("a", std::make_shared<Gain>(5, InitSpec::truncated_normal(1)));
    root.child("b", std::make_shared<Gain>(3, InitSpec::ones()));
    root.child("c", std::make_shared<Gain>(4, InitSpec::uniform(0, 1)));
    std::vector<float> values;
    if (device.has_data()) {
      for (const NamedParameter& p : root.named_parameters()) {
        const std::vector<float> part = p.variable.data().to_vector<float>();
        values.insert(values.end(), part.begin(), part.end());
      }
    }
    return std::pair{context.generator().offset(), values};
  };
  const auto [offset, values] = build(kCpu, 7);
  CHECK(offset == 9);
  CHECK(build(kMeta, 7).first == offset);
  CHECK(build(kFake, 7).first == offset);
  CHECK(build(kCpu, 7).second == values);
  CHECK(build(kCpu, 8).second != values);
  const Tensor slice = Tensor::empty({2});  // elements 1 and 2 of c, alone
  init_slice(slice, InitSpec::uniform(0, 1), 7, 5, 1);
  CHECK(slice.to_vector<float>() == std::vector<float>(values.begin() + 9, values.begin() + 11));
}

TEST_CASE("an observer is told of every initialization instead of it happening") {
  struct Recorder : InitObserver {
    void on_initialize(const Variable& parameter, const InitSpec& spec) override {
      seen.emplace_back(parameter, spec.kind);
    }
    std::vector<std::pair<Variable, InitSpec::Kind>> seen;
  } recorder;
  Context context;
  const ContextScope scope(context);
  {
    const InitObserverScope observing(recorder);
    CHECK(InitObserverScope::current() == &recorder);
    Gain a(2, InitSpec::uniform(0, 1)), b(3, InitSpec::zeros());
    REQUIRE(recorder.seen.size() == 2);
    CHECK(recorder.seen[0].first == a.weight());
    CHECK(recorder.seen[1].second == InitSpec::Kind::zeros);
  }
  CHECK(context.generator().offset() == 0);
  CHECK(InitObserverScope::current() == nullptr);
}

TEST_CASE("a buffer that was never initialized is an error that says what to do") {
  Toy root;
  auto tables = root.child("model.rotary", std::make_shared<Toy>());
  tables->describe_buffer("cos", {4, 2});
  const std::string message = message_of<Error>([&] { tables->get_buffer("cos"); });
  CHECK(message.find("model.rotary.cos") != std::string::npos);
  CHECK(message.find("has not been initialized") != std::string::npos);
  CHECK(message.find("initialize_buffers()") != std::string::npos);
  CHECK_THROWS_AS(tables->get_buffer("sin"), Error);

  Buffer& buffer = tables->own_buffers()[0];
  CHECK_FALSE(buffer.tensor.storage()->is_allocated());
  buffer.tensor.storage()->allocate();
  CHECK(buffer.tensor.storage()->kind() == MemoryKind::buffer);
  buffer.is_initialized = true;
  CHECK(tables->get_buffer("cos").shape() == Shape{4, 2});
}

TEST_CASE("convert() keeps values and handles") {
  Gain gain(3, InitSpec::truncated_normal(1));
  const std::vector<float> before = gain.weight().data().to_vector<float>();
  gain.convert(DType::float64);
  CHECK(gain.weight().data().to_vector<double>() ==
        std::vector<double>(before.begin(), before.end()));
  CHECK(gain.weight().data().storage()->kind() == MemoryKind::unsharded_param);
}

}  // namespace fsdp::nn
