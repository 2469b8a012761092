// Who owns what: FairScale's greedy partition, DeepSpeed's flat cut, and what travels together.
#include "parallel/partition.h"

#include "base/check.h"
#include "support/catch.h"

#include <algorithm>
#include <numeric>

namespace fsdp::parallel::partition_test {

namespace {

using optim::Partition;
using Numels = std::vector<std::int64_t>;
using Slices = std::vector<OwnedSlice>;

}  // namespace

TEST_CASE("the greedy partition gives each parameter to the rank with the smallest load") {
  const Slices slices = divide(Partition::greedy, {1, 1, 1, 1, 4}, 2);
  CHECK(slices == Slices{{0, 0, 1, 0}, {1, 0, 1, 1}, {2, 0, 1, 0}, {3, 0, 1, 1}, {4, 0, 4, 0}});
  CHECK(loads_of(slices, 2) == Numels{6, 2});  // sorted by size, they would be 4 and 4
  CHECK(loads_of(divide(Partition::greedy, {4, 1, 1, 1, 1}, 2), 2) == Numels{4, 4});
  CHECK(loads_of(divide(Partition::greedy, {3, 2, 2}, 3), 3) == Numels{3, 2, 2});
  // One giant tensor: its owner has it all, however many ranks there are.
  CHECK(loads_of(divide(Partition::greedy, {1000, 1, 1}, 8), 8) ==
        Numels{1000, 1, 1, 0, 0, 0, 0, 0});
}

TEST_CASE("the flat partition is near equal, and a parameter may have several owners") {
  const Slices slices = divide(Partition::flat, {1, 1, 1, 1, 4}, 2);
  CHECK(loads_of(slices, 2) == Numels{4, 4});
  // 11 elements for 4 ranks: three for the first 11 mod 4, two for the last.
  CHECK(divide(Partition::flat, {2, 7, 2}, 4) ==
        Slices{{0, 0, 2, 0}, {1, 0, 1, 0}, {1, 1, 3, 1}, {1, 4, 3, 2}, {2, 0, 2, 3}});
  CHECK(loads_of(divide(Partition::flat, {1000, 1, 1}, 8), 8) ==
        Numels{126, 126, 125, 125, 125, 125, 125, 125});
  CHECK(loads_of(divide(Partition::flat, {1, 1}, 4), 4) == Numels{1, 1, 0, 0});
}

TEST_CASE("round robin reorders before the cut: a tensor straddles two owners") {
  // In the order 0 2 4 1 3: the cut of 4 and 4 goes through the last parameter.
  const Slices slices = divide(Partition::round_robin, {1, 1, 1, 1, 4}, 2);
  CHECK(slices ==
        Slices{{0, 0, 1, 0}, {1, 0, 1, 1}, {2, 0, 1, 0}, {3, 0, 1, 1}, {4, 0, 2, 0}, {4, 2, 2, 1}});
  CHECK(loads_of(slices, 2) == Numels{4, 4});
  // 11 elements for 3 ranks, in the order 0 3 1 2: the first 11 mod 3 get one more.
  CHECK(divide(Partition::round_robin, {2, 5, 1, 3}, 3) ==
        Slices{{0, 0, 2, 0}, {1, 0, 3, 1}, {1, 3, 2, 2}, {2, 0, 1, 2}, {3, 0, 2, 0}, {3, 2, 1, 1}});
  CHECK(loads_of(divide(Partition::round_robin, {2, 5, 1, 3}, 3), 3) == Numels{4, 4, 3});
  CHECK(divide(Partition::round_robin, {3, 4}, 1) == Slices{{0, 0, 3, 0}, {1, 0, 4, 0}});
}

TEST_CASE("every element has one owner") {
  const Numels numels{7, 1, 30, 5, 5, 64, 2};
  for (const Partition how : {Partition::greedy, Partition::flat, Partition::round_robin}) {
    for (const int world_size : {1, 2, 3, 4, 8, 200}) {
      CAPTURE(world_size, how == Partition::flat);
      const Slices slices = divide(how, numels, world_size);
      const Numels all = loads_of(slices, world_size);
      CHECK(std::accumulate(all.begin(), all.end(), std::int64_t{0}) == 114);
      Numels next(numels.size(), 0);
      std::vector<std::vector<bool>> owns(numels.size(),
                                          std::vector<bool>(static_cast<std::size_t>(world_size)));
      for (const OwnedSlice& slice : slices) {
        CHECK(slice.begin == next[slice.parameter]);
        next[slice.parameter] += slice.numel;
        const auto owner = static_cast<std::size_t>(slice.owner);
        CHECK(!owns[slice.parameter][owner]);  // at most one slice of a parameter
        owns[slice.parameter][owner] = true;
      }
      CHECK(next == numels);
    }
  }
  CHECK_THROWS_AS(divide(Partition::flat, numels, 0), Error);
}

TEST_CASE("what travels together has one owner, one dtype and room") {
  const Slices slices = divide(Partition::greedy, {2, 2, 2, 2, 2}, 2);  // owners 0 1 0 1 0
  const std::vector<DType> floats(5, DType::float32);
  const auto parameters = [](const std::vector<Slices>& groups) {
    std::vector<std::vector<std::size_t>> all;
    for (const Slices& group : groups) {
      all.emplace_back();
      for (const OwnedSlice& slice : group) all.back().push_back(slice.parameter);
    }
    return all;
  };
  using Lists = std::vector<std::vector<std::size_t>>;
  CHECK(parameters(travel_groups(slices, floats, 0)) == Lists{{4}, {3}, {2}, {1}, {0}});
  CHECK(parameters(travel_groups(slices, floats, 15)) == Lists{{4}, {3}, {2}, {1}, {0}});
  CHECK(parameters(travel_groups(slices, floats, 16)) == Lists{{4, 2}, {3, 1}, {0}});
  CHECK(parameters(travel_groups(slices, floats, 1000)) == Lists{{3, 1}, {4, 2, 0}});
  std::vector<DType> mixed = floats;
  mixed[2] = DType::bfloat16;
  CHECK(parameters(travel_groups(slices, mixed, 1000)) == Lists{{2}, {3, 1}, {4, 0}});
}

}  // namespace fsdp::parallel::partition_test
