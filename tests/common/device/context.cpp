#include "device/context.h"

#include "base/check.h"
#include "device/event_observer.h"
#include "device/storage.h"
#include "support/catch.h"

#include <thread>

using namespace fsdp;

TEST_CASE("what is current belongs to the thread") {
  Context& mine = Context::current();
  CHECK(&Context::current() == &mine);
  CHECK(mine.rank() == 0);
  CHECK(mine.world_size() == 1);
  CHECK(mine.options().threads == 1);

  Context other({.rank = 1, .world_size = 3});
  {
    const ContextScope scope(other);
    CHECK(&Context::current() == &other);
    Context inner;
    {
      const ContextScope inner_scope(inner);
      CHECK(&Context::current() == &inner);
    }
    CHECK(&Context::current() == &other);
    Context* elsewhere = &other;
    bool none_before = false;
    std::thread([&] {
      none_before = Context::current_or_null() == nullptr;
      elsewhere = &Context::current();
    }).join();
    CHECK(none_before);
    CHECK(elsewhere != &other);
    CHECK(elsewhere != &mine);
  }
  CHECK(&Context::current() == &mine);
}

TEST_CASE("a rank outside its world is refused, like a rank without threads") {
  CHECK_THROWS_AS(Context({.rank = 2, .world_size = 2}), Error);
  CHECK_THROWS_AS(Context({.rank = -1}), Error);
  CHECK_THROWS_AS(Context({.threads = 0}), Error);
}

TEST_CASE("each device has its allocator, one tracker counts for all") {
  Context context({.fake_granularity = 512});
  CHECK(context.allocator(kCpu) == context.allocator(kCpu));
  CHECK(context.allocator(kMeta) == nullptr);
  CHECK(&context.allocator(kFake)->tracker() == &context.tracker());
  CHECK(&context.allocator(kCpu)->tracker() == &context.tracker());
  CHECK(context.allocator(kFake)->round_up(1) == 512);
}

TEST_CASE("the memory of the host is counted apart, where there is one") {
  Context fake({.device = kFake, .fake_granularity = 512});
  CHECK(fake.host() == kFakeHost);
  CHECK(&fake.allocator(kFakeHost)->tracker() == &fake.host_tracker());
  CHECK(fake.allocator(kFakeHost)->round_up(1) == 1);  // only accelerators round up
  CHECK(&fake.host_tracker() != &fake.tracker());
  CHECK(Context().host() == kCpu);  // one memory
  Context test({.has_cpu_host = true});
  CHECK(test.host() == kCpuHost);
  CHECK(&test.allocator(kCpuHost)->tracker() == &test.host_tracker());
  const ContextScope scope(test);
  Storage storage(kCpuHost, 8, MemoryKind::sharded_param);
  storage.allocate();
  CHECK(test.tracker().current_total() == 0);
  CHECK(test.host_tracker().current()[MemoryKind::sharded_param] == 8);
}

TEST_CASE("scratch is accounted once, at the first use of the pool") {
  for (const int threads : {1, 2, 3}) {
    Context context({.threads = threads});
    CHECK(context.tracker().current_total() == 0);
    for (int i = 0; i < 2; ++i) {
      CHECK(context.pool().threads() == threads);
      const auto expected = threads * static_cast<std::int64_t>(kScratchBytes);
      CHECK(context.tracker().current()[MemoryKind::temp] == expected);
      CHECK(context.tracker().current_total() == expected);
      CHECK(context.tracker().by_owner().begin()->first == "/scratch");
    }
  }
}

TEST_CASE("the default device is set for a scope") {
  Context context({.device = kFake});
  const ContextScope scope(context);
  CHECK(context.device() == kFake);
  {
    const DeviceScope meta(kMeta);
    CHECK(Context::current().device() == kMeta);
    const DeviceScope cpu(kCpu);
    CHECK(Context::current().device() == kCpu);
  }
  CHECK(context.device() == kFake);
}

TEST_CASE("events are stamped with virtual time when a clock runs") {
  Context context({.cost_model = CostModel{.ps_per_flop = 1}});
  context.record({EventKind::step, "", ""});
  CHECK(context.trace().events().empty());
  context.trace().set_recording(true);
  REQUIRE(context.clock() != nullptr);
  context.clock()->compute({.flops = 123});
  context.record({EventKind::step, "", ""});
  CHECK(context.trace().events().at(0).time == 123);
}

TEST_CASE("an observer sees every event, whether or not the trace records it") {
  struct Watcher : EventObserver {
    void on_event(const Event& event) override { seen.push_back(to_string(event)); }
    std::vector<std::string> seen;
  } watcher;
  Context context;
  const ContextScope scope(context);
  {
    const EventObserverScope watching(watcher);
    context.record({EventKind::step, "", ""});
    Storage storage(kCpu, 8, MemoryKind::unsharded_param,
                    std::make_shared<const Owner>(Owner{"u", "flat"}));
    storage.allocate();
    context.trace().set_recording(true);
    storage.free();
    CHECK_THROWS_WITH(EventObserverScope(watcher), contains("cannot be replaced"));
  }
  context.record({EventKind::step, "", ""});
  CHECK(watcher.seen ==
        std::vector<std::string>{"step", "alloc unsharded_param u", "free unsharded_param u"});
  CHECK(context.trace().lines() == std::vector<std::string>{"free unsharded_param u", "step"});
}

TEST_CASE("without a clock, real time is stamped and does not run backwards") {
  Context context;
  CHECK(context.clock() == nullptr);
  context.trace().set_recording(true);
  for (int i = 0; i < 3; ++i) context.record({EventKind::step, "", ""});
  const auto& events = context.trace().events();
  CHECK(events[0].time >= 0);
  CHECK(events[0].time <= events[1].time);
  CHECK(events[1].time <= events[2].time);
}

TEST_CASE("the random stream starts where the seed says") {
  Context context({.seed = 11});
  CHECK(context.generator() == Generator(11));
}

TEST_CASE("two contexts share nothing") {
  Context a, b;
  const auto block = a.allocator(kCpu)->allocate(64, MemoryKind::temp, nullptr);
  CHECK(a.tracker().current_total() == 64);
  CHECK(b.tracker().current_total() == 0);
  a.allocator(kCpu)->release(block, 64);
}
