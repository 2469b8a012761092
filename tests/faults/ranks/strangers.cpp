// A group is used by a thread that it does not belong to.
#include "kinds.h"
#include "support/catch.h"

#include <future>

namespace fsdp::faults {
namespace {

using enum Promised;

/// Runs `call` on a thread of its own, and hands its error on.
void elsewhere(const std::function<void()>& call) { std::async(std::launch::async, call).get(); }

/// As above, and forgets its error.
void elsewhere_unheard(const std::function<void()>& call) {
  elsewhere([&] {
    try {
      call();
    } catch (const Error&) {
    }
  });
}

/// The culprit does `theirs` before the collectives of all.
std::function<void(const Player&)> first(const std::function<void(ProcessGroup&)>& theirs) {
  return [=](const Player& player) {
    if (player.is_culprit()) theirs(player.group);
    for (const char* unit : {"a", "b"}) reduce(player.group, unit);
  };
}

const std::string kBelongs = "belongs to its rank's own thread";

}  // namespace

TEST_CASE("misbehavior: two threads on one group") {
  check_kinds({
      {"a collective",
       first([](ProcessGroup& group) { elsewhere([&] { reduce(group, "a"); }); }),
       error,
       {"rank 1: all_reduce of a/forward was called by another thread", kBelongs}},
      {"a barrier",
       first([](ProcessGroup& group) { elsewhere([&] { group.barrier({}).wait(); }); }),
       error,
       {"rank 1: barrier was called", kBelongs}},
      {"a split",
       first([](ProcessGroup& group) { elsewhere([&] { (void)group.split(0, 0); }); }),
       error,
       {"rank 1: split was called", kBelongs}},
      {"a split into equal parts",
       first([](ProcessGroup& group) { elsewhere([&] { (void)group.split_contiguous(1); }); }),
       error,
       {"rank 1: split was called", kBelongs}},
      {"instead of its own, unheard",
       [](const Player& player) {
         if (!player.is_culprit()) return reduce(player.group, "a");
         elsewhere_unheard([&] { reduce(player.group, "a"); });
       },
       aborted,
       {"all_reduce of a/forward", "rank 1 has returned"}},
      {"beside its own, at the same time",
       [](const Player& player) {
         std::future<void> other;
         if (player.is_culprit())
           other = std::async(std::launch::async, [&] { reduce(player.group, "a"); });
         for (int i = 0; i < 100; ++i) reduce(player.group, "a");
         if (player.is_culprit()) other.get();
       },
       error,
       {"rank 1: all_reduce of a/forward was called", kBelongs},
       true},
      {"a question",
       [](const Player& player) {
         Work work = start_reduce(player.group, "a");
         if (player.is_culprit()) elsewhere([&] { (void)work.is_done(); });
         work.wait();
         reduce(player.group, "b");
       },
       error,
       {"rank 1: is_done() on a group of rank 1 was called by a thread that is no rank's"}},
  });
}

TEST_CASE("misbehavior: a Work in another thread") {
  const std::vector<std::string> says = {
      "rank 1: its Work of all_reduce of a/forward (collective 0", "a thread that is no rank's",
      "but a Work belongs to the thread that made it"};
  check_kinds({
      {"waited for",
       [](const Player& player) {
         Work work = start_reduce(player.group, "a", 300'000);
         if (player.is_culprit()) elsewhere([&] { work.wait(); });
         work.wait();
         reduce(player.group, "b");
       },
       aborted, says},
      {"waited for, unheard",
       [](const Player& player) {
         Work work = start_reduce(player.group, "a");
         if (player.is_culprit()) elsewhere_unheard([&] { work.wait(); });
         work.wait();
         reduce(player.group, "b");
       },
       aborted, says},
      {"destroyed",
       [](const Player& player) {
         Work work = start_reduce(player.group, "a", 300'000);
         if (player.is_culprit()) elsewhere([&] { work = Work(); });
         work.wait();
         reduce(player.group, "b");
       },
       aborted, says},
      {"destroyed, and nobody else has called it",
       [](const Player& player) {
         const auto other = player.group.split(0, 0);
         if (player.is_culprit()) {
           Work work = start_reduce(player.group, "a");
           elsewhere([&] { work = Work(); });
         }
         gather(*other, "other");
       },
       aborted,
       {"rank 1: its Work of all_reduce of a/forward (collective 1"}},
      {"of another rank",
       [](const Player& player) {
         Scene& scene = player.scene;
         const Tensor data = some();  // stays with its rank, whoever has the Work
         if (player.group.rank() == 0) {
           scene.work = player.group.all_reduce(data, ReduceOp::sum, label("a"));
           scene.published.count_down();
         } else if (player.is_culprit()) {
           scene.published.wait();
           scene.work.wait();
         }
         reduce(player.group, "b");
       },
       aborted,
       {"rank 0: its Work of all_reduce of a/forward", "by the thread of rank 1"}},
  });
}

TEST_CASE("misbehavior: the group of another rank") {
  const auto with_group_of_rank_0 = [](const std::function<void(ProcessGroup&)>& use) {
    return [=](const Player& player) {
      Scene& scene = player.scene;
      if (player.group.rank() == 0) {
        scene.group_of_rank_0 = &player.group;
        scene.published.count_down();
      } else if (player.is_culprit()) {
        scene.published.wait();
        use(*scene.group_of_rank_0);
      }
      reduce(player.group, "a");
      reduce(player.group, "b");
    };
  };
  check_kinds({
      {"a collective",
       with_group_of_rank_0([](ProcessGroup& group) { reduce(group, "a"); }),
       error,
       {"rank 1: all_reduce of a/forward was called by another thread", "(rank 0 of ", kBelongs}},
      {"a split",
       with_group_of_rank_0([](ProcessGroup& group) { (void)group.split(0, 0); }),
       error,
       {"rank 1: split was called by another thread", "(rank 0 of ", kBelongs}},
      {"a world inside a rank that calls the group outside",
       [](const Player& player) {
         if (player.is_culprit())
           run_ranks(2, [&](ProcessGroup& inner) {
             reduce(inner, "inner");
             reduce(player.group, "a");
           });
         reduce(player.group, "a");
       },
       error,
       {"rank 1: rank ", "all_reduce of a/forward was called by another thread"}},
      {"an abort, which may come from anywhere",
       [](const Player& player) {
         if (player.is_culprit()) elsewhere([&] { player.group.abort("watchdog"); });
         reduce(player.group, "a");
       },
       aborted,
       {"rank 1: watchdog"}},
  });
}

}  // namespace fsdp::faults
