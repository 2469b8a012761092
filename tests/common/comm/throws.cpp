// A rank that fails takes the others down at once, and its own error is the one reported.
#include "failures.h"

#include <memory>

namespace fsdp::comm_test {
namespace {

/// What run_ranks threw is a Surprise with this message. Other processes than its own do not know
/// the type, and are told the rank.
void check_ran_into(const Ending& ending, const std::string& message) {
  CHECK((ending.run == message || ending.run == "rank 1: " + message));
}

}  // namespace

TEST_CASE("a rank that throws before a collective takes the others down", "[world]") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    gather(group, "a");
    if (group.rank() == 1) throw Surprise("boom");
    gather(group, "b");
    gather(group, "c");  // a rank cannot run away from it either
  });
  check_ran_into(ending, "boom");
  check_seen(ending, 1, "boom");
  check_seen(ending, 0, "Aborted: rank 1: boom\n",
             "\n   1    0  all_gather  a/forward         4  threw\n");
}

TEST_CASE("what a rank throws is what run_ranks throws, whatever its type") {
  CHECK_THROWS_AS(run_ranks(3,
                            [](ProcessGroup& group) {
                              gather(group, "a");
                              if (group.rank() == 1) throw Surprise("boom");
                              gather(group, "b");
                            }),
                  Surprise);
}

TEST_CASE("a rank that throws with a collective in flight", "[world]") {
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
  check_ran_into(ending, "boom");
  check_seen(ending, 0, "Aborted: rank 1: boom\n");
}

TEST_CASE("a rank that throws with a finished collective in hand", "[world]") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    const Tensor data = Tensor::zeros({4});
    const Work in_flight = group.all_reduce(data, ReduceOp::sum, label("a"));
    if (group.rank() == 1) throw Surprise("boom");
    gather(group, "b");
  });
  check_ran_into(ending, "boom");
  check_seen(ending, 0, "Aborted: rank 1: boom\n");
}

TEST_CASE("a wrong argument on one rank only", "[world]") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    const Tensor out = Tensor::zeros({group.rank() == 1 ? 7 : 8});
    group.all_gather(out, Tensor::zeros({4}), label("a")).wait();
  });
  CHECK(ending.run.find("`out` has 7 elements") != std::string::npos);
  check_seen(ending, 1, ending.run.substr(std::string("rank 1: ").size()));
  check_seen(ending, 0, "Aborted: rank 1: all_gather of a/forward");
}

TEST_CASE("after an abort every call of every group throws the same", "[world]") {
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

TEST_CASE("a rank may abort the group itself", "[world]") {
  const Ending ending = ending_of(2, [](ProcessGroup& group) {
    if (group.rank() == 1) group.abort("the loss is not a number");
    gather(group, "a");
  });
  check_aborted(ending, {"Aborted: rank 1: the loss is not a number\n", "computes"});
}

TEST_CASE("the first failure is the one reported, not what follows from it", "[world]") {
  const Ending ending = ending_of(3, [](ProcessGroup& group) {
    if (group.rank() == 1) throw Surprise("first");
    try {
      gather(group, "a");
    } catch (const Aborted&) {
      throw Surprise("second");
    }
  });
  check_ran_into(ending, "first");
}

TEST_CASE("a Work that outlives its world is no danger", "[world]") {
  std::mutex mutex;
  std::vector<std::shared_ptr<Work>> kept;
  const std::string message = message_of<Aborted>([&] {
    run_ranks(2, [&](ProcessGroup& group) {
      const auto work = std::make_shared<Work>(group.barrier(label("a")));
      const std::lock_guard lock(mutex);
      kept.push_back(work);
    });
  });
  CHECK_THAT(message, contains("its Work of barrier of a/forward"));
  CHECK_THAT(message, contains("was neither waited for nor destroyed"));
  kept.clear();
  run_ranks(2,
            [](ProcessGroup& group) { gather(group, "b"); });  // and the next world is not its own
}

TEST_CASE("nobody frees a buffer under a reader when a rank fails", "[world]") {
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
