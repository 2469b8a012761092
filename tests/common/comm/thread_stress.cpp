// Random programs: every rank issues the same collectives in the same order, and waits as it likes.
// pleases.
#include "comm/world.h"
#include "worlds.h"

#include <deque>
#include <memory>

namespace fsdp::comm_test {
namespace {

/// A stream of choices; the same on every rank that starts it with the same number.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) : seed_(seed) {}
  int below(int limit) {
    return static_cast<int>(random_word(seed_, next_++) % static_cast<std::uint32_t>(limit));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

/// An all-reduce in flight, and what it must give.
struct InFlight {
  Tensor data;
  std::int64_t expected;
  Work work;
};

void finish(InFlight& item) {
  item.work.wait();
  const std::int64_t* sums = item.data.data<std::int64_t>();
  for (std::int64_t i = 0; i < item.data.numel(); ++i)
    expect(sums[i] == item.expected + i, "element {} of {}: {}", i, item.data.numel(), sums[i]);
}

void random_program(ProcessGroup& world, std::uint64_t seed) {
  Choices shared(seed);
  Choices own(seed * 1'000 + static_cast<std::uint64_t>(world.rank()) + 1);
  const auto pair = world.split_contiguous(2);
  const auto strided = world.split_strided(2);
  const auto reversed = world.split(0, -world.rank());
  ProcessGroup* const groups[] = {&world, pair.get(), strided.get(), reversed.get()};

  std::deque<InFlight> in_flight;
  for (int step = 0; step < 40; ++step) {
    ProcessGroup& group = *groups[shared.below(4)];
    const int kind = shared.below(8);
    const std::int64_t numel = kind == 0 ? 50'000 + shared.below(50'000) : shared.below(300);

    // Rank 0 of the group contributes `expected` + i, the others nothing.
    const std::int64_t expected = step + 1;
    std::vector<std::int64_t> values(static_cast<std::size_t>(numel), 0);
    for (std::int64_t i = 0; group.rank() == 0 && i < numel; ++i)
      values[static_cast<std::size_t>(i)] = expected + i;
    const Tensor data = Tensor::from(values, {numel});
    in_flight.push_back({data, expected, group.all_reduce(data, ReduceOp::sum, {"step", {}})});

    while (!in_flight.empty() && own.below(3) == 0) {
      const int which = own.below(static_cast<int>(in_flight.size()));
      finish(in_flight[static_cast<std::size_t>(which)]);
      in_flight.erase(in_flight.begin() + which);
    }
  }
  for (InFlight& item : in_flight) finish(item);
}

}  // namespace

TEST_CASE("random programs over four groups, with waits in any order") {
  for (const int world_size : {2, 4, 6})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      INFO(world_size << " ranks, seed " << seed);
      run_ranks(world_size, [&](ProcessGroup& group) { random_program(group, seed); });
      SUCCEED();
    }
}

}  // namespace fsdp::comm_test
