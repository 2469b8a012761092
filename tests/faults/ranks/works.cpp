// What a rank does with its Works.
#include "kinds.h"
#include "support/catch.h"

#include <optional>

namespace fsdp::faults {
namespace {

using enum Promised;

/// Owns itself.
struct Cycle {
  Work work;
  std::shared_ptr<Cycle> self;
};

/// Asks, and does nothing else; then gets what there is.
void poll(Work work) {
  while (!work.is_done()) {
  }
  work.wait();
}

const std::vector<std::string> kLeaked = {
    "rank 1 has returned, but its Work of all_reduce of leaked/forward (collective 0 of ranks 0, 1",
    "neither waited for nor destroyed"};

}  // namespace

TEST_CASE("misbehavior: a Work leaks") {
  const auto leak = [](const Player& player) {
    player.keep_forever(std::make_shared<Work>(start_reduce(player.group, "leaked")));
  };
  check_kinds({
      {"that all have called",
       [=](const Player& player) {
         if (player.is_culprit()) return leak(player);
         reduce(player.group, "leaked");
         reduce(player.group, "b");
       },
       aborted, kLeaked},
      {"that nobody else calls",
       [=](const Player& player) {
         const auto other = player.group.split(0, 0);
         if (player.is_culprit())
           return player.keep_forever(std::make_shared<Work>(start_reduce(*other, "leaked")));
         reduce(player.group, "a");
       },
       aborted, kLeaked},
      {"and the others have returned",
       [=](const Player& player) {
         if (!player.is_culprit()) return reduce(player.group, "leaked");
         leak(player);
         player.scene.others_ended.wait();
       },
       aborted, kLeaked, true},
      {"with data in motion",
       [](const Player& player) {
         Work work = player.group.all_reduce(some(400'000), ReduceOp::sum, label("leaked"));
         if (player.is_culprit())
           return player.keep_forever(std::make_shared<Work>(std::move(work)));
         work.wait();
         reduce(player.group, "b");
       },
       aborted, kLeaked},
      {"in a cycle",
       [](const Player& player) {
         if (!player.is_culprit()) {
           reduce(player.group, "leaked");
           return reduce(player.group, "b");
         }
         const auto cycle =
             std::make_shared<Cycle>(Cycle{start_reduce(player.group, "leaked"), {}});
         cycle->self = cycle;
         player.keep_forever(std::shared_ptr<void>(nullptr, [cycle](void*) { cycle->self = {}; }));
       },
       aborted, kLeaked},
      {"of a thread",
       [](const Player& player) {
         static thread_local Work kept;
         if (!player.is_culprit()) {
           reduce(player.group, "leaked");
           return reduce(player.group, "b");
         }
         kept = start_reduce(player.group, "leaked");
       },
       aborted, kLeaked},
      {"and the rank throws",
       [=](const Player& player) {
         if (player.is_culprit()) leak(player);
         if (player.is_culprit()) boom();
         reduce(player.group, "leaked");
         reduce(player.group, "b");
       },
       runtime_error,
       {"rank 1: boom"}},
      {"and so do those of all",
       [](const Player& player) {
         player.keep_forever(std::make_shared<Work>(start_reduce(player.group, "leaked")));
       },
       aborted,
       {"all_reduce of leaked/forward (collective 0", "neither waited for"},
       true},
  });
}

TEST_CASE("misbehavior: ranks poll for what can never come") {
  check_kinds({
      {"from a rank that returns",
       [](const Player& player) {
         if (!player.is_culprit()) poll(start_reduce(player.group, "a"));
       },
       aborted,
       {"which rank 1 has not called, and rank 1 has returned", "polls"}},
      {"from a rank that has returned after another collective",
       [](const Player& player) {
         reduce(player.group, "a");
         if (!player.is_culprit()) poll(start_reduce(player.group, "b"));
       },
       aborted,
       {"all_reduce of b/forward (collective 1", "rank 1 has returned"}},
      {"each in another group",
       [](const Player& player) {
         const auto other = player.group.split(0, 0);
         poll(start_reduce(player.is_culprit() ? *other : player.group, "a"));
         poll(start_reduce(player.is_culprit() ? player.group : *other, "a"));
       },
       aborted,
       {"which rank 1 has not called", "rank 1 waits for all_reduce", "polls"}},
      {"while the others wait",
       [](const Player& player) {
         const auto other = player.group.split(0, 0);
         if (player.is_culprit()) poll(start_reduce(*other, "polled"));
         reduce(player.group, "a");
         reduce(*other, "polled");
       },
       aborted,
       {"rank 1 waits for all_reduce of polled/forward", "polls"}},
      {"with an exception",
       [](const Player& player) {
         if (player.is_culprit()) boom();
         poll(start_reduce(player.group, "a"));
       },
       runtime_error,
       {"rank 1: boom"}},
  });
}

TEST_CASE("misbehavior: a Work is given up that nobody else calls") {
  const auto with = [](const std::function<void(ProcessGroup&)>& give_up) {
    return [=](const Player& player) {
      const auto other = player.group.split(0, 0);
      if (player.is_culprit()) give_up(player.group);
      gather(*other, "other");
    };
  };
  const std::vector<std::string> chain = {"rank 1 waits for all_reduce of a/forward",
                                          " waits for all_gather of other/forward"};
  check_kinds({
      {"destroyed", with([](ProcessGroup& group) { const Work work = start_reduce(group, "a"); }),
       aborted, chain},
      {"assigned to", with([](ProcessGroup& group) {
         Work work = start_reduce(group, "a");
         work = Work();
       }),
       aborted, chain},
      {"assigned another", with([](ProcessGroup& group) {
         Work work = start_reduce(group, "a");
         work = start_reduce(group, "b");
       }),
       aborted, chain},
      {"moved, then reset", with([](ProcessGroup& group) {
         Work work = start_reduce(group, "a");
         std::optional<Work> moved(std::move(work));
         moved.reset();
       }),
       aborted, chain},
      {"after its group", with([](ProcessGroup& group) {
         Work work;
         {
           ProcessGroup copy = group;
           work = start_reduce(copy, "a");
         }
         work.wait();
       }),
       aborted, chain},
  });
}

TEST_CASE("misbehavior: none, though it is unusual") {
  check_kinds({
      {"waits in reverse",
       [](const Player& player) {
         std::vector<Work> works;
         for (int i = 0; i < 20; ++i) works.push_back(start_reduce(player.group, "a"));
         for (; !works.empty(); works.pop_back()) works.back().wait();
       },
       nothing},
      {"never waits, destroys in the order of issue",
       [](const Player& player) {
         std::vector<Work> works;
         for (int i = 0; i < 20; ++i) works.push_back(start_reduce(player.group, "a", 20'000));
       },
       nothing},
      {"a Work that outlives its group",
       [](const Player& player) {
         const auto part = player.group.split(0, 0);
         Work work = start_reduce(*part, "a");
         const_cast<std::shared_ptr<ProcessGroup>&>(part).reset();
         work.wait();
       },
       nothing},
      {"asks a hundred times, then goes elsewhere, then waits",
       [](const Player& player) {
         const auto other = player.group.split(0, 0);
         Work work;
         if (player.is_culprit()) {
           work = start_reduce(*other, "a");
           for (int i = 0; i < 100; ++i) (void)work.is_done();
         }
         reduce(player.group, "b");
         if (!player.is_culprit()) work = start_reduce(*other, "a");
         poll(std::move(work));
       },
       nothing},
      {"swallows an error of its own with a Work in hand that all call",
       [](const Player& player) {
         if (player.is_culprit()) {
           swallow_through_work(player.group);
         } else {
           reduce(player.group, "newer");
         }
         reduce(player.group, "b");
       },
       nothing},
      {"returns while the others still work in a part without it",
       [](const Player& player) {
         const auto part = player.group.split(player.is_culprit() ? 1 : 0, 0);
         if (player.is_culprit()) return;
         for (int i = 0; i < 5; ++i) poll(start_reduce(*part, "a"));
       },
       nothing},
  });
}

}  // namespace fsdp::faults
