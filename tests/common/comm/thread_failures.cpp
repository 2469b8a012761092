// What a wrong program meets on the thread backend: an end, on every rank, that says why.
#include "comm/thread_world.h"
#include "worlds.h"

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp::comm_test {
namespace {

using Body = std::function<void(ProcessGroup&)>;

/// How a run ended: the message each rank saw ("" = none), and what run_ranks threw.
struct Ending {
  std::vector<std::string> ranks;
  std::string run;
};

Ending ending_of(int world_size, const Body& body) {
  Ending ending;
  ending.ranks.resize(static_cast<std::size_t>(world_size));
  try {
    run_ranks(world_size, [&](ProcessGroup& group) {
      try {
        body(group);
      } catch (const std::exception& error) {
        ending.ranks[static_cast<std::size_t>(group.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception& error) {
    ending.run = error.what();
  }
  return ending;
}

/// `ending` is an Aborted with one and the same message everywhere, and that contains `parts`.
void check_aborted(const Ending& ending, const std::vector<std::string>& parts) {
  CHECK(ending.run.substr(0, 9) == "Aborted: ");
  for (const std::string& rank : ending.ranks) CHECK(rank == ending.run);
  for (const std::string& part : parts) {
    INFO(ending.run);
    CHECK(ending.run.find(part) != std::string::npos);
  }
}

/// The message without its sentence: the table.
std::string table_in(const std::string& message) { return message.substr(message.find('\n') + 1); }

Label label(const std::string& unit) { return {unit, Phase::forward}; }

void gather(ProcessGroup& group, const std::string& unit, std::int64_t n = 4,
            DType dtype = DType::float32) {
  const Tensor in = Tensor::zeros({n}, dtype);
  group.all_gather(Tensor::empty({n * group.size()}, dtype), in, label(unit)).wait();
}

void reduce(ProcessGroup& group, const std::string& unit, ReduceOp op = ReduceOp::sum) {
  group.all_reduce(Tensor::zeros({4}), op, label(unit)).wait();
}

/// Something that is no Error: run_ranks must hand out what was thrown, not a copy of its text.
class Surprise : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace

TEST_CASE("a rank that skips a collective") {
  const Ending ending = ending_of(3, [](ProcessGroup& group) {
    gather(group, "a");
    if (group.rank() != 1) gather(group, "b");
    gather(group, "c");
  });
  check_aborted(ending, {"ranks disagree on the label of collective 1: b/forward on rank 0, "
                         "c/forward on rank 1",
                         "\n   0    1  all_gather  b/forward         4  ",
                         "\n   1    1  all_gather  c/forward         4  ",
                         "\n   2    1  all_gather  b/forward         4  "});
}

TEST_CASE("a rank that swaps two collectives") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      gather(group, "a");
      reduce(group, "a");
    } else {
      reduce(group, "a");
      gather(group, "a");
    }
  });
  check_aborted(ending, {"ranks disagree on the operation of collective 0: all_gather on rank 0, "
                         "all_reduce on rank 1",
                         "rank  seq  operation   unit       elements  state\n",
                         "   0    0  all_gather  a/forward         4  ",
                         "   1    0  all_reduce  a/forward         4  "});
}

TEST_CASE("a rank that passes another size, type, reduction or root") {
  check_aborted(
      ending_of(4, [](ProcessGroup& group) { gather(group, "a", group.rank() == 2 ? 5 : 4); }),
      {"the number of elements of collective 0: 4 on rank 0, 5 on rank 2",
       "\n   2    0  all_gather  a/forward         5  "});
  check_aborted(ending_of(2,
                          [](ProcessGroup& group) {
                            gather(group, "a", 4,
                                   group.rank() == 1 ? DType::int32 : DType::float32);
                          }),
                {"the element type of collective 0: float32 on rank 0, int32 on rank 1"});
  check_aborted(ending_of(2,
                          [](ProcessGroup& group) {
                            reduce(group, "a", group.rank() == 1 ? ReduceOp::avg : ReduceOp::sum);
                          }),
                {"the reduction of collective 0: sum on rank 0, avg on rank 1"});
  check_aborted(ending_of(2,
                          [](ProcessGroup& group) {
                            group.broadcast(Tensor::zeros({1}), group.rank(), label("a")).wait();
                          }),
                {"the root of collective 0: 0 on rank 0, 1 on rank 1"});
}

TEST_CASE("no byte has moved when ranks disagree") {
  std::vector<float> seen(2, -1);
  const Ending ending = ending_of(2, [&](ProcessGroup& group) {
    const Tensor data = Tensor::from<float>({static_cast<float>(group.rank())}, {1});
    try {
      group.all_reduce(data, ReduceOp::sum, label(group.rank() == 0 ? "a" : "b")).wait();
    } catch (const Aborted&) {
      seen[static_cast<std::size_t>(group.rank())] = *data.data<float>();
      throw;
    }
  });
  check_aborted(ending, {"the label"});
  CHECK(seen == std::vector<float>{0, 1});
}

TEST_CASE("a rank that throws before a collective takes the others down") {
  CHECK_THROWS_AS(run_ranks(3,
                            [](ProcessGroup& group) {
                              gather(group, "a");
                              if (group.rank() == 1) throw Surprise("boom");
                              gather(group, "b");
                            }),
                  Surprise);
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    gather(group, "a");
    if (group.rank() == 1) throw Surprise("boom");
    gather(group, "b");
    gather(group, "c");  // a rank cannot run away from it either
  });
  CHECK(ending.run == "boom");
  CHECK(ending.ranks[1] == "boom");
  CHECK(ending.ranks[0].substr(0, 22) == "Aborted: rank 1: boom\n");
  CHECK(table_in(ending.ranks[0]).find("   1    0  all_gather  a/forward         4  threw\n") !=
        std::string::npos);
}

TEST_CASE("a rank that throws with a collective in flight") {
  // Its Work is destroyed on the way up, and would wait for ever for a rank that waits elsewhere.
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    const auto other = group.split(0, group.rank());
    if (group.rank() == 1) {
      const Tensor data = Tensor::zeros({4});
      const Work in_flight = group.all_reduce(data, ReduceOp::sum, label("a"));
      throw Surprise("boom");
    }
    gather(*other, "b");
  });
  CHECK(ending.run == "boom");
  CHECK(ending.ranks[0].substr(0, 22) == "Aborted: rank 1: boom\n");
}

TEST_CASE("a rank that throws with a finished collective in hand") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    const Tensor data = Tensor::zeros({4});
    const Work in_flight = group.all_reduce(data, ReduceOp::sum, label("a"));
    if (group.rank() == 1) throw Surprise("boom");
    gather(group, "b");
  });
  CHECK(ending.run == "boom");
  CHECK(ending.ranks[0].substr(0, 22) == "Aborted: rank 1: boom\n");
}

TEST_CASE("an error swallowed after its Work was given up is reported as the hang it is") {
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

TEST_CASE("a wrong argument on one rank only") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    const Tensor out = Tensor::zeros({group.rank() == 1 ? 7 : 8});
    group.all_gather(out, Tensor::zeros({4}), label("a")).wait();
  });
  CHECK(ending.run.find("`out` has 7 elements") != std::string::npos);
  CHECK(ending.ranks[1] == ending.run);
  CHECK(ending.ranks[0].find("Aborted: rank 1: all_gather of a/forward") == 0);
}

TEST_CASE("a rank that returns early") {
  const Ending ending = ending_of(3, [](ProcessGroup& group) {
    gather(group, "a");
    if (group.rank() == 1) return;
    gather(group, "b");
  });
  CHECK(ending.ranks[1].empty());
  CHECK(ending.ranks[0] == ending.run);
  CHECK(ending.ranks[2] == ending.run);
  CHECK(ending.run.find("b/forward (collective 1 of ranks 0, 1, 2), which rank 1 has not called, "
                        "and rank 1 has returned") != std::string::npos);
  CHECK(table_in(ending.run).find("   1    0  all_gather  a/forward         4  returned\n") !=
        std::string::npos);
}

TEST_CASE("a rank that returns without any collective: the whole message") {
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

TEST_CASE("two groups, each waited for by one rank") {
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

TEST_CASE("after an abort every call of every group throws the same") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    const auto other = group.split(0, 0);
    const Tensor data = Tensor::zeros({4});
    Work never = other->all_reduce(data, ReduceOp::sum, label(group.rank() == 0 ? "a" : "b"));
    std::string first;
    try {
      never.wait();
      group.barrier({}).wait();
    } catch (const Aborted& error) {
      first = error.what();
    }
    expect(never.is_done(), "an aborted Work is not pending");
    expect(message_of<Aborted>([&] { group.barrier({}).wait(); }) == first, "barrier");
    expect(message_of<Aborted>([&] { (void)other->split(0, 0); }) == first, "split");
    throw Aborted(first);
  });
  // The rank that called last is told at once; it is its call that throws, not its wait.
  CHECK(ending.run.find("ranks disagree on the label") != std::string::npos);
}

TEST_CASE("a rank may abort the group itself") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    if (group.rank() == 1) group.abort("the loss is not a number");
    gather(group, "a");
  });
  check_aborted(ending, {"Aborted: rank 1: the loss is not a number\n", "computes"});
}

TEST_CASE("the first failure is the one reported, not what follows from it") {
  const Ending ending = ending_of(3, [](ProcessGroup& group) {
    if (group.rank() == 1) throw Surprise("first");
    try {
      gather(group, "a");
    } catch (const Aborted&) {
      throw Surprise("second");
    }
  });
  CHECK(ending.run == "first");
}

TEST_CASE("nobody frees a buffer under a reader when a rank fails") {
  // Rank 1 gives up while its peers may be in the middle of its input; ASan looks on.
  for (int round = 0; round < 30; ++round) {
    const Ending ending = ending_of(3, [&](ProcessGroup& group) {
      const std::int64_t n = 100'000;
      const Tensor in = Tensor::zeros({n});
      const Tensor out = Tensor::empty({n * group.size()});
      Work work = group.all_gather(out, in, label("a"));
      if (group.rank() == 1 && round % 2 == 0) throw Surprise("boom");
      if (group.rank() == 1) group.abort("boom");
      work.wait();
      gather(group, "b");
    });
    CHECK_FALSE(ending.run.empty());
  }
}

}  // namespace fsdp::comm_test
