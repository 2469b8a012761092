#include "device/memory_tracker.h"

#include "base/check.h"
#include "device/allocator.h"
#include "support/catch.h"

#include <random>
#include <vector>

using namespace fsdp;
using Kind = MemoryKind;

namespace {
std::shared_ptr<const Owner> owner_of(const char* unit, const char* name) {
  return std::make_shared<const Owner>(Owner{unit, name});
}
}  // namespace

TEST_CASE("each of the ten kinds is counted by itself, T13") {
  MemoryTracker tracker;
  for (int i = 0; i < kMemoryKinds; ++i) {
    const auto kind = static_cast<Kind>(i);
    const auto block = tracker.on_alloc(kind, 100 + i, nullptr);
    Breakdown expected;
    expected[kind] = 100 + i;
    CHECK(tracker.current() == expected);
    CHECK(tracker.current_total() == 100 + i);
    tracker.on_free(block);
    CHECK(tracker.current() == Breakdown{});
  }
}

TEST_CASE("the peak keeps the breakdown of its moment, T19") {
  MemoryTracker tracker;
  const auto param = tracker.on_alloc(Kind::sharded_param, 10, nullptr);
  const auto spike = tracker.on_alloc(Kind::temp, 90, nullptr);
  tracker.on_free(spike);
  const auto activation = tracker.on_alloc(Kind::activation, 60, nullptr);
  CHECK(tracker.peak_total() == 100);
  CHECK(tracker.peak()[Kind::sharded_param] == 10);
  CHECK(tracker.peak()[Kind::temp] == 90);
  CHECK(tracker.peak()[Kind::activation] == 0);

  tracker.reset_peak();
  CHECK(tracker.peak_total() == 70);
  CHECK(tracker.peak() == tracker.current());
  tracker.on_free(activation);
  tracker.on_free(param);
  CHECK(tracker.peak_total() == 70);
  CHECK(tracker.current_total() == 0);
}

TEST_CASE("bytes can change their kind without changing the total") {
  MemoryTracker tracker;
  tracker.set_logging(true);
  const auto block = tracker.on_alloc(Kind::reduce_scatter, 64, owner_of("u", "g"));
  tracker.recategorize(block, Kind::sharded_grad);
  CHECK(tracker.current()[Kind::reduce_scatter] == 0);
  CHECK(tracker.current()[Kind::sharded_grad] == 64);
  CHECK(tracker.peak_total() == 64);
  REQUIRE(tracker.log().size() == 2);
  CHECK(tracker.log()[1].what == MemoryTracker::LogEntry::What::recategorize);
  CHECK(tracker.log()[1].kind == Kind::sharded_grad);
  CHECK(tracker.log()[1].owner->unit == "u");
  tracker.reassign(block, Kind::temp, owner_of("v", "h"));
  CHECK(tracker.by_owner() == std::map<std::string, std::int64_t>{{"v/h", 64}});
}

TEST_CASE("to free a block needs no memory, so that a destructor may") {
  MemoryTracker tracker;
  std::vector<MemoryTracker::BlockId> alive;
  for (int i = 0; i < 5; ++i) alive.push_back(tracker.on_alloc(Kind::temp, 1, nullptr));
  tracker.set_logging(true);
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    for (auto more = random() % 9; more > 0; --more) {
      alive.push_back(tracker.on_alloc(Kind::temp, 1, nullptr));
      tracker.recategorize(alive[random() % alive.size()], Kind::activation);
    }
    // All of them, now and then: what is needed then must have its place.
    const std::size_t kept = random() % 50 == 0 ? 0 : alive.size() / 2;
    const auto* const log = tracker.log().data();
    for (; alive.size() > kept; alive.pop_back()) tracker.on_free(alive.back());
    CHECK(tracker.log().data() == log);
  }
}

TEST_CASE("a block is freed once, and its id is never used again") {
  MemoryTracker tracker;
  const auto first = tracker.on_alloc(Kind::temp, 1, nullptr);
  tracker.on_free(first);
  const auto second = tracker.on_alloc(Kind::temp, 1, nullptr);
  CHECK(first != second);
  CHECK_THROWS_AS(tracker.on_free(first), Error);
  CHECK_THROWS_AS(tracker.on_free(-1), Error);
  CHECK_THROWS_AS(tracker.on_free(12345), Error);
  CHECK(tracker.current_total() == 1);
}

TEST_CASE("only active modules see a peak, T19") {
  MemoryTracker tracker;
  const auto floor = tracker.on_alloc(Kind::sharded_param, 10, nullptr);
  tracker.enter_module("model");
  tracker.enter_module("model.a");
  tracker.on_free(tracker.on_alloc(Kind::temp, 100, nullptr));
  tracker.leave_module("model.a");
  tracker.enter_module("model.b");
  const auto kept = tracker.on_alloc(Kind::activation, 30, nullptr);
  tracker.leave_module("model.b");
  tracker.on_free(tracker.on_alloc(Kind::temp, 500, nullptr));
  tracker.leave_module("model");
  tracker.on_free(tracker.on_alloc(Kind::temp, 9000, nullptr));
  CHECK(tracker.module_peaks() ==
        std::map<std::string, std::int64_t>{{"model", 540}, {"model.a", 110}, {"model.b", 40}});
  CHECK_THROWS_AS(tracker.leave_module("model"), Error);
  tracker.on_free(kept);
  tracker.on_free(floor);
}

TEST_CASE("a reset during a module starts its peak again") {
  MemoryTracker tracker;
  tracker.enter_module("done");
  tracker.on_free(tracker.on_alloc(Kind::temp, 100, nullptr));
  tracker.leave_module("done");
  tracker.enter_module("busy");
  tracker.reset_peak();
  tracker.on_free(tracker.on_alloc(Kind::temp, 7, nullptr));
  tracker.leave_module("busy");
  CHECK(tracker.module_peaks() == std::map<std::string, std::int64_t>{{"busy", 7}});
}

TEST_CASE("an observer sees every growth, and nothing after it is removed, T16") {
  struct Seen : GrowthObserver {
    std::vector<std::int64_t> totals;
    void on_growth(const Breakdown& now, std::int64_t total) override {
      CHECK(now.total() == total);
      totals.push_back(total);
    }
  } seen;
  MemoryTracker tracker;
  tracker.set_observer(&seen);
  CHECK_THROWS_AS(tracker.set_observer(&seen), Error);
  const auto block = tracker.on_alloc(Kind::temp, 5, nullptr);
  tracker.on_alloc(Kind::buffer, 7, nullptr);
  tracker.recategorize(block, Kind::activation);
  tracker.on_free(block);
  tracker.on_alloc(Kind::temp, 1, nullptr);
  tracker.set_observer(nullptr);
  tracker.on_alloc(Kind::temp, 100, nullptr);
  CHECK(seen.totals == std::vector<std::int64_t>{5, 12, 12, 8});  // more of a kind is growth
}

TEST_CASE("living bytes are listed by owner") {
  MemoryTracker tracker;
  tracker.on_alloc(Kind::sharded_param, 1, owner_of("blocks.0", "wq"));
  tracker.on_alloc(Kind::optimizer, 2, owner_of("blocks.0", "wq"));
  const auto gone = tracker.on_alloc(Kind::temp, 4, owner_of("blocks.1", "wq"));
  tracker.on_alloc(Kind::temp, 8, nullptr);
  tracker.on_free(gone);
  CHECK(tracker.by_owner() == std::map<std::string, std::int64_t>{{"blocks.0/wq", 3}, {"/", 8}});
}

TEST_CASE("the event log replays to the same peak, T19") {
  std::mt19937 random(3);
  MemoryTracker tracker;
  std::vector<MemoryTracker::BlockId> alive;
  const auto churn = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto kind = static_cast<Kind>(random() % kMemoryKinds);
      if (alive.empty() || random() % 5 < 2) {
        alive.push_back(
            tracker.on_alloc(kind, static_cast<std::int64_t>(random() % 1000), nullptr));
        continue;
      }
      const std::size_t victim = random() % alive.size();
      if (random() % 3 == 0) {
        tracker.recategorize(alive[victim], kind);
      } else {
        tracker.on_free(alive[victim]);
        alive[victim] = alive.back();
        alive.pop_back();
      }
    }
  };
  churn(200);
  CHECK(tracker.log().empty());
  tracker.reset_peak();
  tracker.set_logging(true);  // begins with what is alive
  churn(2000);
  CHECK(replay_peak(tracker.log()) == tracker.peak());
  CHECK(replay_peak(tracker.log()).total() == tracker.peak_total());

  tracker.set_logging(false);
  const std::size_t length = tracker.log().size();
  churn(10);
  CHECK(tracker.log().size() == length);
}

TEST_CASE("allocation scopes nest and belong to the thread") {
  CHECK(AllocationScope::kind() == Kind::activation);
  CHECK(AllocationScope::owner() == nullptr);
  {
    const AllocationScope outer(Kind::buffer, owner_of("u", "x"));
    {
      const AllocationScope inner(Kind::temp);
      CHECK(AllocationScope::kind() == Kind::temp);
      CHECK(AllocationScope::owner()->unit == "u");
    }
    CHECK(AllocationScope::kind() == Kind::buffer);
    const AllocationScope nobody(Kind::temp, nullptr);
    CHECK(AllocationScope::owner() == nullptr);
  }
  CHECK(AllocationScope::kind() == Kind::activation);
  CHECK(AllocationScope::owner() == nullptr);
}

TEST_CASE("owners and breakdowns read well") {
  CHECK(to_string(Owner{"blocks.0", "wq.weight"}) == "unit blocks.0, parameter wq.weight");
  CHECK(to_string(Owner{"blocks.0", ""}) == "unit blocks.0");
  CHECK(to_string(Owner{"", "scratch"}) == "scratch");
  Breakdown breakdown;
  CHECK(to_string(breakdown) == "nothing");
  breakdown[Kind::temp] = 8;
  breakdown[Kind::sharded_param] = 64;
  CHECK(to_string(breakdown) == "SHARDED_PARAM 64, TEMP 8");
}
