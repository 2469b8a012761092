// Arguments that the interfaces refuse, each with an error that names what is wrong.
#include "support/catch.h"
#include "support/toy.h"

#include <vector>

using namespace fsdp;
using namespace fsdp::testing;

TEST_CASE("A parameter that was not recorded is named") {
  Context context;
  const ContextScope scope(context);
  DeferredInit deferred, other;
  const auto build = [] { return std::make_shared<Toy>(ToyConfig{}); };
  const auto model = deferred.build(build), stranger = other.build(build);
  CHECK_THAT(message_of<Error>([&] { deferred.materialize(*stranger, kCpu); }),
             contains("layers.0.weight"));
  const Variable unknown(Tensor::zeros({25}), true);
  CHECK_THAT(message_of<Error>([&] { deferred.init_slice(unknown, 0, Tensor::zeros({10})); }),
             contains("not built under this DeferredInit"));
}

TEST_CASE("One flat parameter has one dtype and is trainable or not") {
  const auto message = [](bool trainable, DType dtype) {
    std::vector<nn::NamedParameter> parameters;
    for (const char* name : {"p0", "p1"}) {
      parameters.push_back({name, Variable(Tensor::zeros({2}), true), nullptr});
    }
    parameters[1].variable.set_requires_grad(trainable);
    parameters[1].variable.convert(dtype);
    return message_of<Error>(
        [&] { const FlatParameter flat("unit", parameters, 0, 2, kCpu, copy_slice); });
  };
  CHECK(message(true, DType::float32) == "");
  CHECK_THAT(message(false, DType::float32), contains("p1"));
  CHECK_THAT(message(true, DType::float64), contains("float64"));
  CHECK_THAT(
      message_of<Error>([] { const FlatParameter flat("unit", {}, 0, 2, kCpu, copy_slice); }),
      contains("at least one"));
}

TEST_CASE("Which values of reshard_after_forward fit") {
  const auto message = [](int s, int world_size) {
    return message_of<Error>([&] { ReshardAfterForward::within(s).validate(world_size); });
  };
  for (const int world_size : {1, 2, 3, 4, 6, 8}) {
    for (const auto& any : {ReshardAfterForward::always(), ReshardAfterForward::never()}) {
      CHECK_NOTHROW(any.validate(world_size));
    }
    for (int s = -1; s <= 9; ++s) {
      const bool fits = s > 1 && s < world_size && world_size % s == 0;
      CAPTURE(s, world_size);
      CHECK((message(s, world_size) == "") == fits);
    }
  }
  CHECK_THAT(message(2, 3), contains("reshard_after_forward = 2 does not fit 3 ranks"));
  CHECK_THAT(message(3, 4), contains("divides 4"));
}

TEST_CASE("What cannot be sharded is refused on every rank") {
  const int world_size = GENERATE(1, 2, 3, 4);
  const auto refused = [&](const FullyShardOptions& options, const std::string& part) {
    const auto messages = on_ranks(world_size, [&](ProcessGroup& group) {
      return message_of<Error>([&] { const ShardedToy toy({}, group, options); });
    });
    for (const std::string& message : messages) CHECK_THAT(message, contains(part));
  };
  FullyShardOptions options;
  options.reshard_after_forward = ReshardAfterForward::within(world_size == 4 ? 3 : 2);
  refused(options, "does not fit");
  options = {};
  options.prefetch_depth = -1;
  refused(options, "prefetch_depth = -1");
}

TEST_CASE("A unit keeps no part that it has no subgroup for") {
  const int world_size = GENERATE(1, 2, 3, 4);
  FullyShardOptions options;
  if (world_size == 4) options.reshard_after_forward = ReshardAfterForward::within(2);
  const auto messages = on_ranks(world_size, [&](ProcessGroup& group) {
    const ShardedToy toy({}, group, options);
    ShardedUnit& unit = *toy.sharded->units().front();
    unit.set_options({.reshard_after_forward = options.reshard_after_forward});
    return message_of<Error>(
        [&] { unit.set_options({.reshard_after_forward = ReshardAfterForward::within(3)}); });
  });
  for (const std::string& message : messages) {
    CHECK_THAT(message, contains("it was made without a subgroup of 3 ranks"));
  }
}

TEST_CASE("A prefetcher of depth 0 or less, or of a negative limit, is an error") {
  CHECK(message_of<Error>([] { Prefetcher({}, {1, 0}); }) == "");
  CHECK_THAT(message_of<Error>([] { Prefetcher({}, {0, 0}); }), contains("prefetch depth is 0"));
  CHECK_THAT(message_of<Error>([] { Prefetcher({}, {-1, 0}); }), contains("prefetch depth is -1"));
  CHECK_THAT(message_of<Error>([] { Prefetcher({}, {1, -2}); }), contains("limit is -2"));
}
