// A rank throws, swallows, or gives up.
#include "kinds.h"
#include "support/catch.h"

#include <pthread.h>

namespace fsdp::faults {
namespace {

using enum Promised;

/// The others wait at another group for the culprit, which does `theirs` first.
std::function<void(const Player&)> while_others_wait(
    const std::function<void(const Player&)>& theirs) {
  return [=](const Player& player) {
    const auto other = player.group.split(0, 0);
    if (player.is_culprit()) theirs(player);
    gather(*other, "other");
  };
}

struct CallsInDestructor {
  ProcessGroup& group;
  ~CallsInDestructor() {
    try {
      group.barrier({"cleanup", {}}).wait();
    } catch (const Aborted&) {
    }
  }
};

const std::vector<std::string> kBoom = {"rank 1: boom"};
const std::vector<std::string> kChain = {"rank 1 waits for all_reduce of newer/forward",
                                         " waits for all_gather of other/forward"};

}  // namespace

TEST_CASE("misbehavior: a rank throws") {
  check_kinds({
      {"before anything",
       [](const Player& player) {
         if (player.is_culprit()) boom();
         gather(player.group, "a");
       },
       runtime_error, kBoom},
      {"between two collectives",
       [](const Player& player) {
         gather(player.group, "a");
         if (player.is_culprit()) boom();
         gather(player.group, "b");
       },
       runtime_error, kBoom},
      {"between issue and wait of what all have called",
       [](const Player& player) {
         Work work = start_reduce(player.group, "a", 300'000);
         if (player.is_culprit()) boom();
         work.wait();
         gather(player.group, "b");
       },
       runtime_error, kBoom},
      {"with a Work in flight that nobody else calls", while_others_wait([](const Player& player) {
         const Work work = start_reduce(player.group, "newer");
         boom();
       }),
       runtime_error, kBoom},
      {"with three Works in flight", while_others_wait([](const Player& player) {
         const Work a = start_reduce(player.group, "a"), b = start_reduce(player.group, "b");
         const Work c = start_reduce(player.group, "c");
         boom();
       }),
       runtime_error, kBoom},
      {"an InputError",
       while_others_wait([](const Player&) { throw InputError("shard.json: no such field"); }),
       input_error,
       {"rank 1: shard.json: no such field"}},
      {"a number", while_others_wait([](const Player&) { throw 7; }), number},
      {"out of memory",
       while_others_wait([](const Player&) { throw std::bad_alloc(); }),
       error,
       {"rank 1: out of memory"}},
      {"the end of its thread",
       while_others_wait([](const Player&) { ::pthread_exit(nullptr); }),
       error,
       {"rank 1: it has ended its own thread by pthread_exit()"}},
      {"an Aborted of its own",
       while_others_wait([](const Player&) { throw Aborted("Aborted: by hand"); }),
       aborted,
       {"by hand"}},
      {"and calls from a destructor on the way",
       [](const Player& player) {
         gather(player.group, "a");
         if (player.is_culprit()) {
           const CallsInDestructor guard{player.group};
           boom();
         }
         gather(player.group, "b");
       },
       runtime_error, kBoom},
      {"and so do all others",
       [](const Player& player) {
         const auto other = player.group.split(0, 0);
         const Work work = start_reduce(player.is_culprit() ? player.group : *other, "a");
         boom();
       },
       runtime_error,
       {": boom"},
       true},
      {"something else after the others have failed",
       [](const Player& player) {
         if (player.is_culprit()) {
           player.scene.others_ended.wait();
           // They leave their bodies now. Only the world's own word says that it knows of it.
           try {
             gather(player.group, "a");
           } catch (const Aborted&) {
             boom();
           }
         }
         if (player.group.rank() == 0) throw InputError("first");
         gather(player.group, "a");
       },
       input_error,
       {"rank 0: first"},
       true},
  });
}

TEST_CASE("misbehavior: a rank swallows an error") {
  const auto swallow = [](const Player& player) { swallow_through_work(player.group); };
  check_kinds({
      {"and goes on", while_others_wait(swallow), aborted, kChain},
      {"and waits for an older Work", while_others_wait([](const Player& player) {
         Work older = start_reduce(player.group, "older");
         swallow_through_work(player.group);
         older.wait();
       }),
       aborted, kChain},
      {"and destroys an older Work", while_others_wait([](const Player& player) {
         const Work older = start_reduce(player.group, "older");
         swallow_through_work(player.group);
       }),
       aborted, kChain},
      {"and assigns to an older Work", while_others_wait([](const Player& player) {
         Work older = start_reduce(player.group, "older");
         swallow_through_work(player.group);
         older = Work();
       }),
       aborted, kChain},
      {"and asks for an older Work until it is done", while_others_wait([](const Player& player) {
         const Work older = start_reduce(player.group, "older");
         swallow_through_work(player.group);
         while (!older.is_done()) {
         }
       }),
       aborted, kChain},
      {"and returns",
       [](const Player& player) {
         const auto other = player.group.split(0, 0);
         if (player.is_culprit()) return swallow_through_work(player.group);
         gather(*other, "other");
       },
       aborted, kChain},
      {"and splits", while_others_wait([](const Player& player) {
         swallow_through_work(player.group);
         (void)player.group.split(0, 0);
       }),
       aborted, kChain},
      {"and computes until the others have ended", while_others_wait([](const Player& player) {
         swallow_through_work(player.group);
         player.scene.others_ended.wait();
       }),
       aborted, kChain, false, std::chrono::milliseconds(0)},
      {"and aborts the group with its own words",
       while_others_wait([](const Player& player) {
         swallow_through_work(player.group);
         player.group.abort("gave up");
         player.scene.others_ended.wait();
       }),
       aborted,
       {"rank 1: gave up"}},
      {"and throws another", while_others_wait([](const Player& player) {
         swallow_through_work(player.group);
         try {
           gather(player.group, "a");
         } catch (const Aborted&) {
           boom();
         }
       }),
       aborted, kChain},
      {"again and again", while_others_wait([](const Player& player) {
         for (int i = 0; i < 100; ++i) {
           try {
             swallow_through_work(player.group);
           } catch (const Aborted&) {
           }
         }
       }),
       aborted, kChain},
      {"that takes long to come out",
       while_others_wait([](const Player& player) {
         struct Slow {
           Scene& scene;
           ~Slow() { scene.others_ended.wait(); }
         };
         const Slow slow{player.scene};
         const Work work = start_reduce(player.group, "newer");
         boom();
       }),
       runtime_error,
       {},
       true,
       std::chrono::milliseconds(0)},
  });
}

TEST_CASE("misbehavior: a rank aborts") {
  check_kinds({
      {"and goes on",
       while_others_wait([](const Player& player) { player.group.abort("enough"); }),
       aborted,
       {"rank 1: enough"}},
      {"twice",
       while_others_wait([](const Player& player) {
         player.group.abort("first");
         player.group.abort("second");
       }),
       aborted,
       {"rank 1: first"}},
      {"with Works in flight",
       while_others_wait([](const Player& player) {
         const Work work = start_reduce(player.group, "a", 300'000);
         player.group.abort("enough");
       }),
       aborted,
       {"rank 1: enough"}},
      {"and returns",
       [](const Player& player) {
         if (player.is_culprit()) return player.group.abort("enough");
         gather(player.group, "a");
       },
       aborted,
       {"rank 1: enough"}},
      {"and computes until the others have ended",
       while_others_wait([](const Player& player) {
         player.group.abort("enough");
         player.scene.others_ended.wait();
       }),
       aborted,
       {"rank 1: enough"}},
      {"when the others have returned",
       [](const Player& player) {
         gather(player.group, "a");
         if (!player.is_culprit()) return;
         player.scene.others_ended.wait();
         player.group.abort("too late");
       },
       aborted,
       {"rank 1: too late"},
       true},
      {"a group that was split off",
       [](const Player& player) {
         const auto other = player.group.split(0, 0);
         if (player.is_culprit()) other->abort("enough");
         gather(player.group, "a");
       },
       aborted,
       {"rank 1: enough"}},
  });
}

}  // namespace fsdp::faults
