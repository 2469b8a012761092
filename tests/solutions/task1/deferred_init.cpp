// Task 1: building without memory, and carrying the initialization out later, elsewhere, in part.
#include "nn/transformer.h"
#include "support/catch.h"
#include "support/toy.h"
#include "task1_meta_device/meta_device.h"
#include "tensor/ops.h"

#include <memory>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

/// A rank of its own for a test.
struct Rank {
  explicit Rank(std::uint64_t seed = 5) : context({.seed = seed}), scope(context) {
    context.pool();  // its scratch is there from now on
    floor = context.tracker().current_total();
    context.tracker().reset_peak();
  }
  std::int64_t held() { return context.tracker().current_total() - floor; }
  std::int64_t peak() { return context.tracker().peak_total() - floor; }
  Context context;
  ContextScope scope;
  std::int64_t floor = 0;
};

std::shared_ptr<nn::TransformerLM> make_transformer(bool tied = false) {
  nn::TransformerConfig config = nn::TransformerConfig::nano();
  config.tie_word_embeddings = tied;
  return std::make_shared<nn::TransformerLM>(config);
}

/// Every parameter of `model` has the bits of the one under the same path in `expected`.
void check_equal_parameters(nn::Module& model, nn::Module& expected) {
  const auto parameters = model.named_parameters();
  const auto others = expected.named_parameters();
  REQUIRE(parameters.size() == others.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    CAPTURE(parameters[i].path);
    CHECK(parameters[i].path == others[i].path);
    CHECK(ops::equal_bits(parameters[i].variable.data(), others[i].variable.data()));
  }
}

Tensor tokens_of(const nn::TransformerConfig& config) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < config.max_position_embeddings; ++i) {
    tokens.push_back(static_cast<std::int32_t>(i * 7 % config.vocab_size));
  }
  return Tensor::from(tokens, {1, config.max_position_embeddings});
}

}  // namespace

TEST_CASE("Building allocates nothing and describes everything", "[1.1][1.2]") {
  Rank rank;
  const auto eager = make_transformer();
  REQUIRE(rank.held() > 0);
  const std::int64_t before = rank.held();
  rank.context.tracker().reset_peak();

  DeferredInit deferred;
  const auto model = deferred.build([] { return make_transformer(); });
  CHECK(rank.held() == before);
  CHECK(rank.peak() == before);  // not for a moment
  CHECK(model->parameter_count() == eager->parameter_count());
  for (const nn::NamedParameter& each : model->named_parameters()) {
    CHECK(each.variable.data().device() == kMeta);
    CHECK(each.variable.requires_grad());
  }
  CHECK(deferred.records().size() == model->named_parameters().size());
}

TEST_CASE("Building leaves the generator, the device and the observer as they were", "[1.1]") {
  Rank rank;
  rank.context.generator().set_offset(41);
  const Generator before = rank.context.generator();
  DeferredInit deferred;
  (void)deferred.build([] { return make_transformer(); });
  CHECK(rank.context.generator() == before);
  CHECK(rank.context.device() == kCpu);
  CHECK(nn::InitObserverScope::current() == nullptr);

  // What is drawn next is what would have been drawn without it.
  const auto after = make_transformer();
  Rank other;
  other.context.generator().set_offset(41);
  check_equal_parameters(*after, *make_transformer());
}

TEST_CASE("A model whose construction throws leaves nothing behind either", "[1.1]") {
  Rank rank;
  rank.context.generator().set_offset(3);
  const Generator before = rank.context.generator();
  DeferredInit deferred;
  const auto build = [&] {
    (void)deferred.build([] {
      const auto half = make_transformer();
      fail("the other half is missing");
      return half;
    });
  };
  CHECK(message_of<Error>(build) == "the other half is missing");
  CHECK(rank.context.generator() == before);
  CHECK(rank.context.device() == kCpu);
  CHECK(nn::InitObserverScope::current() == nullptr);
  CHECK(rank.held() == 0);
}

TEST_CASE("Materializing gives the bits of an eager build", "[1.2][1.4]") {
  const std::uint64_t offset = GENERATE(0U, 1U, 1000003U);
  Rank eager_rank(9);
  eager_rank.context.generator().set_offset(offset);
  const auto eager = make_transformer();
  const Generator after_eager = eager_rank.context.generator();
  const std::int64_t eager_bytes = eager_rank.held();

  Rank rank(9);
  rank.context.generator().set_offset(offset);
  DeferredInit deferred;
  const auto model = deferred.build([] { return make_transformer(); });
  deferred.materialize(*model, kCpu);
  check_equal_parameters(*model, *eager);
  CHECK(rank.context.generator() == after_eager);
  CHECK(rank.held() == eager_bytes);
  const MemoryTracker& tracker = rank.context.tracker();
  CHECK(tracker.current()[MemoryKind::unsharded_param] == 4 * model->parameter_count());
}

TEST_CASE("Replay does not depend on what was drawn in between", "[1.4]") {
  Rank rank(9);
  DeferredInit deferred;
  const auto model = deferred.build([] { return make_transformer(); });
  (void)make_transformer();  // draws from the same stream
  deferred.materialize(*model, kCpu);
  Rank other(9);
  check_equal_parameters(*model, *make_transformer());
}

TEST_CASE("The model works after materializing: its buffers are there", "[1.4]") {
  Rank rank(9);
  DeferredInit deferred;
  const auto model = deferred.build([] { return make_transformer(); });
  const Variable tokens(tokens_of(model->config()));
  const auto eager = make_transformer();
  CHECK_THAT(message_of<Error>([&] { (*model)(tokens); }), contains("meta"));
  deferred.materialize(*model, kCpu);
  Rank other(9);
  const auto expected = make_transformer();
  CHECK(ops::equal_bits((*model)(tokens).data(), (*expected)(tokens).data()));
}

TEST_CASE("A tied parameter is one parameter", "[1.2][1.4]") {
  Rank eager_rank;
  const auto eager = make_transformer(true);
  const std::int64_t eager_bytes = eager_rank.held();
  Rank rank;
  DeferredInit deferred;
  const auto model = deferred.build([] { return make_transformer(true); });
  CHECK(deferred.records().size() == model->named_parameters().size());
  CHECK(model->named_parameters_with_ties().size() == model->named_parameters().size() + 1);
  deferred.materialize(*model, kCpu);
  CHECK(rank.held() == eager_bytes);
  check_equal_parameters(*model, *eager);
  for (const nn::NamedParameter& each : model->named_parameters_with_ties()) {
    CHECK(each.variable.data().device() == kCpu);
  }
}

TEST_CASE("A parameter that has its memory is left alone", "[1.4]") {
  Rank rank;
  DeferredInit deferred;
  const auto model = deferred.build([] { return std::make_shared<Toy>(ToyConfig{}); });
  Variable first = model->named_parameters()[0].variable;
  first.set_data(Tensor::zeros(first.shape()));
  const auto storage = first.data().storage();
  deferred.materialize(*model, kCpu);
  CHECK(first.data().storage() == storage);
  CHECK(ops::equal_bits(first.data(), Tensor::zeros(first.shape())));
}

TEST_CASE("A parameter that was not recorded is named", "[1.4]") {
  Rank rank;
  std::shared_ptr<Toy> stranger;
  {
    const DeviceScope on_meta(kMeta);
    stranger = std::make_shared<Toy>(ToyConfig{});
  }
  DeferredInit deferred;
  const auto model = deferred.build([] { return std::make_shared<Toy>(ToyConfig{}); });
  deferred.materialize(*model, kCpu);
  CHECK_THAT(message_of<Error>([&] { deferred.materialize(*stranger, kCpu); }),
             contains("layers.0.weight"));
}
