#include "tensor/tree_sum.h"

#include "kernel_checks.h"

#include <bit>

using namespace fsdp;
using namespace kernel_checks;

namespace {

/// The definition, word by word.
template <class T>
T tree(const std::vector<T>& leaves) {
  if (leaves.size() == 1) return leaves[0];
  std::size_t split = 1;
  while (split * 2 < leaves.size()) split *= 2;
  const auto middle = leaves.begin() + static_cast<std::ptrdiff_t>(split);
  return tree(std::vector<T>(leaves.begin(), middle)) + tree(std::vector<T>(middle, leaves.end()));
}

template <class T>
std::vector<T> leaf(std::int64_t count, std::uint64_t k) {
  std::vector<T> values;
  for (const double x : random_values(count, k, -100, 100)) values.push_back(static_cast<T>(x));
  return values;
}

template <class T>
void check_tree_sum(std::size_t leaves, std::int64_t count, std::size_t misaligned) {
  std::vector<std::vector<T>> in;
  for (std::size_t k = 0; k < leaves; ++k) {
    in.push_back(leaf<T>(count + static_cast<std::int64_t>(misaligned), k + 1));
  }
  std::vector<T> expected;
  for (std::size_t i = misaligned; i < in[0].size(); ++i) {
    std::vector<T> column;
    for (const auto& values : in) column.push_back(values[i]);
    expected.push_back(tree(column));
  }
  std::vector<const std::byte*> pointers;
  for (const auto& values : in)
    pointers.push_back(reinterpret_cast<const std::byte*>(values.data() + misaligned));
  std::vector<T> out(expected.size());
  tree_sum(reinterpret_cast<std::byte*>(out.data()), pointers, count, dtype_of<T>());
  CHECK(out == expected);
  // Into each of the inputs: later ones must still be read before they are overwritten.
  const std::size_t target = leaves / 2;
  tree_sum(reinterpret_cast<std::byte*>(in[target].data() + misaligned), pointers, count,
           dtype_of<T>());
  CHECK(std::equal(expected.begin(), expected.end(),
                   in[target].begin() + static_cast<std::ptrdiff_t>(misaligned)));
}

Tensor leaf_tensor(std::int64_t count, std::uint64_t k) {
  return Tensor::from(leaf<float>(count, k), {count});
}

}  // namespace

TEST_CASE("a tree sum is the canonical sum of any number of leaves") {
  const std::size_t leaves = GENERATE(range(std::size_t{1}, std::size_t{18}));
  for (const std::int64_t count : {0, 1, 7, 8, 511, 512, 1300}) {
    for (const std::size_t misaligned : {0u, 1u, 9u}) {
      check_tree_sum<float>(leaves, count, misaligned);
      check_tree_sum<double>(leaves, count, misaligned);
      check_tree_sum<std::int32_t>(leaves, count, misaligned);
      check_tree_sum<std::int64_t>(leaves, count, misaligned);
    }
  }
  const std::vector<float> scalars = leaf<float>(static_cast<std::int64_t>(leaves), 99);
  CHECK(tree_sum(std::span<const float>(scalars)) == tree(scalars));
}

TEST_CASE("the order of a tree sum matters, so the test above can fail") {
  const std::vector<float> values = leaf<float>(13, 5);
  float left_to_right = 0;
  for (const float value : values) left_to_right += value;
  CHECK(tree(values) != left_to_right);
}

TEST_CASE("integers wrap instead of overflowing, nothing has no sum") {
  const std::vector<std::int32_t> big(9, 2'000'000'000);
  const auto* bytes = reinterpret_cast<const std::byte*>(big.data());
  std::vector<std::int32_t> out(9);
  const std::vector<const std::byte*> three(3, bytes);
  tree_sum(reinterpret_cast<std::byte*>(out.data()), three, 9, DType::int32);
  CHECK(out[8] == static_cast<std::int32_t>(6'000'000'000 - (std::int64_t{1} << 32)));
  CHECK_THROWS_AS(tree_sum(reinterpret_cast<std::byte*>(out.data()), {}, 9, DType::int32), Error);
  CHECK_THROWS_AS(tree_sum(std::span<const float>()), Error);
}

TEST_CASE("an accumulator gives the tree's sum with at most popcount partials") {
  const std::int64_t count = 1000;
  const std::int64_t leaves = GENERATE(range(std::int64_t{1}, std::int64_t{17}));
  Context context({.threads = 2});
  const ContextScope scope(context);
  auto owner = std::make_shared<const Owner>(Owner{"blocks.0", "gradient"});
  TreeAccumulator accumulator(MemoryKind::sharded_grad, owner);
  const auto held = [&] {
    return context.tracker().current()[MemoryKind::sharded_grad] / (4 * count);
  };
  std::vector<std::vector<float>> values;
  Tensor reused;
  for (std::int64_t m = 1; m <= leaves; ++m) {
    values.push_back(leaf<float>(count, static_cast<std::uint64_t>(m)));
    if (!reused.is_defined()) reused = Tensor::empty({count});
    reused.storage()->allocate();
    std::copy(values.back().begin(), values.back().end(), reused.data<float>());
    accumulator.push(reused);
    CHECK_FALSE(reused.storage()->is_allocated());
    CHECK(accumulator.leaves() == m);
    CHECK(held() == std::popcount(static_cast<std::uint64_t>(m)));
    CHECK(context.tracker().current()[MemoryKind::activation] == 0);
  }
  const Tensor sum = accumulator.fold();
  CHECK(accumulator.leaves() == 0);
  CHECK(held() == 1);
  std::vector<float> expected;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::vector<float> column;
    for (const auto& one : values) column.push_back(one[i]);
    expected.push_back(tree(column));
  }
  CHECK(sum.to_vector<float>() == expected);
}

TEST_CASE("an accumulator can be cleared and used again, and refuses what does not fit") {
  TreeAccumulator accumulator(MemoryKind::temp, nullptr);
  CHECK_THROWS_AS(accumulator.fold(), Error);
  accumulator.push(leaf_tensor(10, 1));
  CHECK_THROWS_AS(accumulator.push(leaf_tensor(11, 1)), Error);
  CHECK_THROWS_AS(accumulator.push(leaf_tensor(20, 1).narrow(0, 0, 10)), Error);
  CHECK_THROWS_AS(accumulator.push(Tensor()), Error);
  CHECK(accumulator.leaves() == 1);
  accumulator.clear();
  CHECK(accumulator.leaves() == 0);
  accumulator.push(leaf_tensor(20, 3));
  CHECK(accumulator.fold().to_vector<float>() == leaf<float>(20, 3));
}

TEST_CASE("an accumulator counts bytes that do not exist") {
  Context context({.device = kFake});
  const ContextScope scope(context);
  TreeAccumulator accumulator(MemoryKind::unsharded_grad, nullptr);
  for (int m = 1; m <= 7; ++m) accumulator.push(Tensor::empty({1 << 20}));
  CHECK(context.tracker().current()[MemoryKind::unsharded_grad] == 3 * (std::int64_t{4} << 20));
  accumulator.fold();
  CHECK(context.tracker().current()[MemoryKind::unsharded_grad] == 0);
  const Tensor meta = Tensor::empty({8}, DType::float32, kMeta);
  accumulator.push(meta);
  accumulator.push(meta);
  CHECK(accumulator.fold().shape() == Shape{8});
}
