// Task 1, step 4: a slice of a parameter has the bits of the whole, and is made without the whole.
#include "support/catch.h"
#include "support/toy.h"
#include "task1_meta_device/meta_device.h"
#include "tensor/ops.h"

#include <memory>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

constexpr std::uint64_t kSeed = 3;

/// A toy built the ordinary way, by a rank that has drawn nothing else.
std::shared_ptr<Toy> make_eager(const ToyConfig& config) {
  Context context({.seed = kSeed});
  const ContextScope scope(context);
  return std::make_shared<Toy>(config);
}

}  // namespace

TEST_CASE("Every slice has the bits of the same slice of an eager build", "[1.3]") {
  const ToyConfig config{.width = 7, .layers = 2};
  const auto eager = make_eager(config);
  Context context({.seed = kSeed});
  const ContextScope scope(context);
  DeferredInit deferred;
  const auto model = deferred.build([&] { return std::make_shared<Toy>(config); });
  const auto parameters = model->named_parameters();
  const auto expected = eager->named_parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t numel = expected[i].variable.data().numel();
    const Tensor whole = expected[i].variable.data().view({numel});
    for (const std::int64_t begin : {std::int64_t{0}, std::int64_t{1}, numel / 2, numel}) {
      for (const std::int64_t length : {std::int64_t{0}, std::int64_t{1}, numel - begin}) {
        if (begin + length > numel) continue;
        const Tensor slice = Tensor::empty({length});
        deferred.init_slice(parameters[i].variable, begin, slice);
        CAPTURE(parameters[i].path, begin, length);
        CHECK(ops::equal_bits(slice, whole.narrow(0, begin, length)));
      }
    }
  }
}

TEST_CASE("A slice is made without the whole, and touches nothing else", "[1.3]") {
  Context context({.seed = kSeed});
  const ContextScope scope(context);
  DeferredInit deferred;
  const auto model =
      deferred.build([] { return std::make_shared<Toy>(ToyConfig{.width = 600, .layers = 1}); });
  const Variable weight = model->layers()[0]->weight();
  const Tensor frame = Tensor::zeros({12});
  context.pool();
  context.tracker().reset_peak();
  const std::int64_t before = context.tracker().peak_total();
  const Generator generator = context.generator();
  deferred.init_slice(weight, 359'990, frame.narrow(0, 1, 10));
  CHECK(context.tracker().peak_total() == before);
  CHECK(context.generator() == generator);
  CHECK(weight.data().device() == kMeta);
  const std::vector<float> values = frame.to_vector<float>();
  CHECK(values.front() == 0.0F);
  CHECK(values.back() == 0.0F);
  CHECK(values[1] != 0.0F);
}

TEST_CASE("Slices can still be made after materializing", "[1.3]") {
  Context context({.seed = kSeed});
  const ContextScope scope(context);
  DeferredInit deferred;
  const auto model = deferred.build([] { return std::make_shared<Toy>(ToyConfig{}); });
  deferred.materialize(*model, kCpu);
  const Variable weight = model->layers()[2]->weight();
  const Tensor slice = Tensor::empty({10});
  deferred.init_slice(weight, 5, slice);
  CHECK(ops::equal_bits(slice, weight.data().view({25}).narrow(0, 5, 10)));
}

TEST_CASE("A slice that leaves its parameter, or of an unknown one, is an error", "[1.3]") {
  Context context({.seed = kSeed});
  const ContextScope scope(context);
  DeferredInit deferred;
  const auto model = deferred.build([] { return std::make_shared<Toy>(ToyConfig{}); });
  const Variable weight = model->layers()[0]->weight();  // 25 elements
  const Tensor out = Tensor::zeros({10});
  deferred.init_slice(weight, 15, out);
  CHECK_THAT(message_of<Error>([&] { deferred.init_slice(weight, 16, out); }), contains("25"));
  CHECK_THAT(message_of<Error>([&] { deferred.init_slice(weight, -1, out); }), contains("25"));
  const Variable unknown(Tensor::zeros({25}), true);
  CHECK_THAT(message_of<Error>([&] { deferred.init_slice(unknown, 0, out); }),
             contains("not built under this DeferredInit"));
}
