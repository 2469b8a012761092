#include "base/trace.h"

#include "support/catch.h"

using namespace fsdp;

TEST_CASE("events read as the lines that tests compare") {
  CHECK(to_string(Event{EventKind::issue, "blocks.0", "all_gather", Phase::forward}) ==
        "issue all_gather blocks.0/forward");
  CHECK(to_string(Event{EventKind::wait, "blocks.0", "all_gather", Phase::forward}) ==
        "wait all_gather blocks.0/forward");
  CHECK(to_string(Event{EventKind::alloc, "blocks.0", "unsharded_param"}) ==
        "alloc unsharded_param blocks.0");
  CHECK(to_string(Event{EventKind::free, "blocks.0", "unsharded_param"}) ==
        "free unsharded_param blocks.0");
  CHECK(to_string(Event{EventKind::forward_begin, "blocks.0", ""}) == "forward_begin blocks.0");
  CHECK(to_string(Event{EventKind::step, "", ""}) == "step");
}

TEST_CASE("a label names unit and phase") {
  CHECK(to_string(Label{"blocks.0", Phase::gradient}) == "blocks.0/gradient");
  CHECK(to_string(Label{"", Phase::loss}) == "loss");
  CHECK(to_string(Label{"blocks.0", Phase::none}) == "blocks.0");
  CHECK(Label{"a", Phase::forward} == Label{"a", Phase::forward});
  CHECK_FALSE(Label{"a", Phase::forward} == Label{"a", Phase::backward});
}

TEST_CASE("a trace records only when asked to, and in order") {
  Trace trace;
  trace.record({EventKind::step, "", ""});
  CHECK(trace.events().empty());
  trace.set_recording(true);
  trace.record({EventKind::forward_begin, "a", ""});
  trace.record({EventKind::alloc, "a", "temp"});
  trace.record({EventKind::forward_end, "a", ""});
  CHECK(trace.lines() ==
        std::vector<std::string>{"forward_begin a", "alloc temp a", "forward_end a"});
  CHECK(trace.lines({EventKind::forward_end, EventKind::forward_begin}) ==
        std::vector<std::string>{"forward_begin a", "forward_end a"});
  trace.clear();
  CHECK(trace.lines().empty());
  CHECK(trace.is_recording());
}
