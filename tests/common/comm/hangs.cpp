// Ranks that wait for what can never come: found by who waits for whom, without a clock.
#include "failures.h"

#include <atomic>
#include <future>
#include <memory>

namespace fsdp::comm_test {

TEST_CASE("an error swallowed after its Work was given up is reported as the hang it is",
          "[world]") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    const auto other = group.split(0, group.rank());
    if (group.rank() == 1) {
      try {
        const Tensor data = Tensor::zeros({4});
        const Work in_flight = group.all_reduce(data, ReduceOp::sum, label("a"));
        throw Surprise("boom");
      } catch (const Surprise&) {
      }
    }
    gather(*other, "b");
  });
  check_aborted(ending, {"which rank 1 has not called", "which rank 0 has not called"});
}

TEST_CASE("a rank that returns early", "[world]") {
  const Ending ending = ending_of(3, [](ProcessGroup& group) {
    gather(group, "a");
    if (group.rank() == 1) return;
    gather(group, "b");
  });
  check_seen(ending, 0, ending.run);
  check_seen(ending, 2, ending.run);
  CHECK(ending.run.find("b/forward (collective 1 of ranks 0, 1, 2), which rank 1 has not called, "
                        "and rank 1 has returned") != std::string::npos);
  CHECK(table_in(ending.run).find("   1    0  all_gather  a/forward         4  returned\n") !=
        std::string::npos);
}

TEST_CASE("a rank that returns without any collective: the whole message", "[world]") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    if (group.rank() == 1) gather(group, "blocks.0");
  });
  CHECK(ending.run ==
        "Aborted: rank 1 waits for all_gather of blocks.0/forward (collective 0 of ranks 0, 1), "
        "which rank 0 has not called, and rank 0 has returned\n"
        "rank  seq  operation   unit              elements  state\n"
        "   0    -  -           -                        -  returned\n"
        "   1    0  all_gather  blocks.0/forward         4  waits\n");
}

TEST_CASE("two groups, each waited for by one rank", "[world]") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    const auto other = group.split(0, -group.rank());
    const bool first = group.rank() == 0;
    gather(first ? group : *other, "a");
    gather(first ? *other : group, "a");
  });
  check_aborted(ending, {"; rank "});
  CHECK(table_in(ending.run) ==
        "in the group of ranks 0, 1:\n"
        "rank  seq  operation   unit       elements  state\n"
        "   0    1  all_gather  a/forward         4  waits\n"
        "   1    0  split       -                 0  waits elsewhere\n"
        "in the group of ranks 1, 0:\n"
        "rank  seq  operation   unit       elements  state\n"
        "   1    0  all_gather  a/forward         4  waits\n"
        "   0    -  -           -                 -  waits elsewhere\n");
}

TEST_CASE("a circle of three is found while a fourth rank still computes") {
  std::promise<void> found;
  const std::shared_future<void> when_found = found.get_future().share();
  std::atomic<bool> told = false;
  const Ending ending = ending_of(4, [&](ProcessGroup& group) {
    // Pairs (0,1), (1,2), (2,0): each of the three waits for the next.
    std::vector<std::shared_ptr<ProcessGroup>> pairs;
    for (int pair = 0; pair < 3; ++pair) {
      const bool member = group.rank() == pair || group.rank() == (pair + 1) % 3;
      pairs.push_back(group.split(member ? 0 : 1, 0));
    }
    if (group.rank() == 3) {
      when_found.wait();
      gather(group, "too late");
      return;
    }
    try {
      gather(*pairs[static_cast<std::size_t>(group.rank())], "a");
    } catch (const Aborted&) {
      if (!told.exchange(true)) found.set_value();
      throw;
    }
  });
  check_aborted(ending, {"rank 0 waits for", "rank 1 waits for", "rank 2 waits for"});
}

}  // namespace fsdp::comm_test
