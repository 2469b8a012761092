// Task 2: the flat vector, its shards, and the views that outlive the bytes.
#include "task2_flat_parameter/flat_parameter.h"

#include "support/catch.h"
#include "support/toy.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

/// Parameters of the given numbers of elements, called p0, p1, … Element i of the flat vector is
/// i +
/// 1.
std::vector<nn::NamedParameter> counting(const std::vector<std::int64_t>& sizes) {
  std::vector<nn::NamedParameter> parameters;
  float next = 1;
  for (const std::int64_t size : sizes) {
    std::vector<float> values(static_cast<std::size_t>(size));
    std::iota(values.begin(), values.end(), next);
    next += static_cast<float>(size);
    parameters.push_back({fmt::format("p{}", parameters.size()),
                          Variable(Tensor::from(values, {size}), true), nullptr});
  }
  return parameters;
}

FlatParameter make_flat(const std::vector<std::int64_t>& sizes, int rank, int world_size) {
  return FlatParameter("unit", counting(sizes), rank, world_size, kCpu, copy_slice);
}

/// The padded flat vector of counting().
std::vector<float> padded(std::int64_t numel, std::int64_t padded_numel) {
  std::vector<float> values(static_cast<std::size_t>(padded_numel), 0.0F);
  std::iota(values.begin(), values.begin() + numel, 1.0F);
  return values;
}

struct Layout {
  std::vector<std::int64_t> sizes;
  int world_size;
  std::int64_t shard;  // n
};

const std::vector<Layout> kLayouts = {
    {{10}, 3, 4},          // two elements of padding
    {{6, 3}, 2, 5},        // one
    {{5}, 4, 2},           // the last rank holds padding only
    {{3}, 5, 1},           // two ranks hold padding only
    {{1}, 4, 1},           // three do
    {{4, 4}, 2, 4},        // none, and the border falls between parameters
    {{2, 3, 1, 7}, 4, 4},  // borders cut through parameters
    {{9}, 1, 9},           // one rank
    {{1, 1, 1, 1}, 2, 2}, {{100}, 7, 15},
};

}  // namespace

TEST_CASE("Layout: n = ceil(N / W), P = n W, spans without gaps", "[2.1]") {
  for (const Layout& layout : kLayouts) {
    const FlatParameter flat = make_flat(layout.sizes, 0, layout.world_size);
    const std::int64_t numel =
        std::accumulate(layout.sizes.begin(), layout.sizes.end(), std::int64_t{0});
    CAPTURE(numel, layout.world_size);
    CHECK(flat.numel() == numel);
    CHECK(flat.shard_numel() == layout.shard);
    CHECK(flat.padded_numel() == layout.shard * layout.world_size);
    REQUIRE(flat.spans().size() == layout.sizes.size());
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < layout.sizes.size(); ++i) {
      CHECK(flat.spans()[i].path == fmt::format("p{}", i));
      CHECK(flat.spans()[i].begin == begin);
      CHECK(flat.spans()[i].numel == layout.sizes[i]);
      begin += layout.sizes[i];
    }
  }
}

TEST_CASE("The shard is a slice of the padded flat vector", "[2.3]") {
  for (const Layout& layout : kLayouts) {
    for (int rank = 0; rank < layout.world_size; ++rank) {
      const FlatParameter flat = make_flat(layout.sizes, rank, layout.world_size);
      const std::vector<float> whole = padded(flat.numel(), flat.padded_numel());
      const auto begin = whole.begin() + rank * flat.shard_numel();
      CAPTURE(layout.world_size, rank, layout.sizes);
      CHECK(flat.shard().to_vector<float>() ==
            std::vector<float>(begin, begin + flat.shard_numel()));
      CHECK(flat.valid_shard_numel() ==
            std::count_if(begin, begin + flat.shard_numel(), [](float v) { return v != 0; }));
    }
  }
}

TEST_CASE("Making a shard never holds a full copy", "[2.3][2.4]") {
  const int world_size = GENERATE(2, 4, 8);
  Context context;
  const ContextScope scope(context);
  context.pool();
  MemoryTracker& tracker = context.tracker();
  const std::int64_t floor = tracker.current_total();
  auto parameters = counting({4000, 96});
  REQUIRE(tracker.current_total() - floor == 4 * 4096);
  tracker.reset_peak();
  const FlatParameter flat("unit", std::move(parameters), 0, world_size, kCpu, copy_slice);
  const std::int64_t shard = 4 * 4096 / world_size;
  CHECK(tracker.peak_total() - floor == 4 * 4096 + shard);  // what was there, and the shard
  CHECK(tracker.current_total() - floor == shard);          // the parameters' own memory is gone
  CHECK(tracker.current()[MemoryKind::sharded_param] == shard);
  CHECK(!flat.full().storage()->is_allocated());
  CHECK(!flat.full_grad().storage()->is_allocated());
}

TEST_CASE("A shard can be made of parameters that never existed", "[2.3]") {
  Context context;
  const ContextScope scope(context);
  context.pool();
  const std::int64_t floor = context.tracker().current_total();
  std::vector<nn::NamedParameter> parameters;
  for (const std::int64_t size : {6, 5}) {
    const auto index = parameters.size();
    parameters.push_back({fmt::format("p{}", index),
                          Variable(Tensor::empty({size}, DType::float32, kMeta), true), nullptr});
  }
  const auto ids = std::vector{parameters[0].variable.id(), parameters[1].variable.id()};
  std::vector<std::string> asked;
  const SliceSource source = [&](const Variable& parameter, std::int64_t begin, const Tensor& out) {
    const int index = parameter.id() == ids[0] ? 0 : 1;
    asked.push_back(fmt::format("p{}[{}:{}]", index, begin, begin + out.numel()));
    ops::fill(out, 10 * index + 1);
  };
  const FlatParameter flat("unit", parameters, 1, 3, kCpu, source);
  CHECK(asked == std::vector<std::string>{"p0[4:6]", "p1[0:2]"});
  CHECK(flat.shard().to_vector<float>() == std::vector<float>{1, 1, 11, 11});
  CHECK(context.tracker().peak_total() - floor == 16);
  CHECK(parameters[0].variable.data().device() == kCpu);
}

TEST_CASE("Parameters and their gradients are views of the flat vectors", "[2.4]") {
  const FlatParameter flat = make_flat({6, 3}, 0, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const Variable& variable = flat.parameters()[i].variable;
    CHECK(variable.data().storage() == flat.full().storage());
    CHECK(variable.data().offset() == flat.spans()[i].begin);
    CHECK(variable.data().shape() == flat.spans()[i].shape);
    CHECK(variable.grad_buffer().storage() == flat.full_grad().storage());
    CHECK(variable.grad_buffer().offset() == flat.spans()[i].begin);
  }
  CHECK(flat.full().shape() == Shape{10});
  CHECK(flat.full().storage()->kind() == MemoryKind::unsharded_param);
  CHECK(flat.full_grad().storage()->kind() == MemoryKind::unsharded_grad);
}

TEST_CASE("Views survive any number of free and allocate", "[2.4]") {
  const FlatParameter flat = make_flat({6, 3}, 0, 2);
  const Tensor view = flat.parameters()[1].variable.data();
  const Storage* storage = flat.full().storage().get();
  for (int round = 1; round <= 3; ++round) {
    flat.full().storage()->allocate();
    CHECK(!ops::all_finite(flat.full()));  // nothing is left of the last round
    ops::fill(flat.full(), round);
    CHECK(view.to_vector<float>() == std::vector<float>(3, static_cast<float>(round)));
    flat.full().storage()->free();
    CHECK(flat.full().storage().get() == storage);
    CHECK(view.shape() == Shape{3});
  }
}

TEST_CASE("Reading a parameter whose bytes are gone names unit, parameter and remedy", "[2.4]") {
  const FlatParameter flat = make_flat({6, 3}, 0, 2);
  const Variable weight = flat.parameters()[0].variable;
  const auto read = [&] { return weight.data().to_vector<float>(); };
  CHECK_THAT(message_of<StorageError>(read), contains("unit unit"));
  CHECK_THAT(message_of<StorageError>(read), contains("has not been allocated yet"));
  flat.full().storage()->allocate();
  ops::fill(flat.full(), 2);
  CHECK(read() == std::vector<float>(6, 2.0F));
  flat.full().storage()->free("reshard after forward");
  CHECK_THAT(message_of<StorageError>(read), contains("reshard after forward"));
  CHECK_THAT(message_of<StorageError>(read), contains("parameters"));
}

TEST_CASE("A frozen flat parameter has no gradient", "[2.4]") {
  auto parameters = counting({3});
  parameters[0].variable.set_requires_grad(false);
  const FlatParameter flat("unit", parameters, 0, 2, kCpu, copy_slice);
  CHECK(!flat.requires_grad());
  CHECK(!flat.full_grad().is_defined());
  CHECK(!parameters[0].variable.grad_buffer().is_defined());
}

TEST_CASE("One flat parameter has one dtype and is trainable or not", "[2.1]") {
  const auto message = [](const std::vector<nn::NamedParameter>& parameters) {
    return message_of<Error>(
        [&] { const FlatParameter flat("unit", parameters, 0, 2, kCpu, copy_slice); });
  };
  CHECK(message(counting({2, 2})) == "");
  auto mixed = counting({2, 2});
  mixed[1].variable.set_requires_grad(false);
  CHECK_THAT(message(mixed), contains("p1"));
  auto wide = counting({2, 2});
  wide[1].variable.convert(DType::float64);
  CHECK_THAT(message(wide), contains("float64"));
  CHECK_THAT(message({}), contains("at least one"));
}
