// How reshard_after_forward, no_sync and no_grad change the list of event_order.cpp.
#include "event_lists.h"
#include "support/catch.h"

#include <algorithm>

using namespace fsdp;
using namespace fsdp::testing;

namespace {

const std::vector<std::string> kWire = {"issue", "wait"};

/// Everything that is issued and waited for in the second of two micro-steps.
Lines wire_of(int micro_steps_per_reduction, bool first_of_two) {
  return on_ranks(2,
                  [&](ProcessGroup& group) {
                    ShardedToy toy({}, group);
                    toy.iteration();
                    Trace& trace = Context::current().trace();
                    toy.sharded->begin_step({2, micro_steps_per_reduction});
                    for (int m = 0; m < 2; ++m) {
                      trace.set_recording((m == 0) == first_of_two);
                      toy.loss(m).backward();
                      toy.sharded->end_micro_step();
                    }
                    trace.set_recording(false);
                    toy.sharded->finish_gradients();
                    return only(trace.lines(), kWire);
                  })
      .front();
}

const Lines kForwardWire = {
    "issue all_gather layers.0/forward", "wait all_gather layers.0/forward",
    "issue all_gather layers.1/forward", "wait all_gather layers.1/forward",
    "issue all_gather layers.2/forward", "wait all_gather layers.2/forward",
};

const Lines kBackwardWire = {
    "issue all_gather layers.1/backward",     "issue reduce_scatter layers.2/gradient",
    "wait all_gather layers.1/backward",      "issue all_gather layers.0/backward",
    "wait reduce_scatter layers.2/gradient",  "issue reduce_scatter layers.1/gradient",
    "wait all_gather layers.0/backward",      "wait reduce_scatter layers.1/gradient",
    "issue reduce_scatter layers.0/gradient", "wait reduce_scatter layers.0/gradient",
};

}  // namespace

TEST_CASE("reshard_after_forward = false: one gather a unit, parameters freed in backward") {
  FullyShardOptions options;
  options.reshard_after_forward = ReshardAfterForward::never();
  options.prefetch_depth = GENERATE(0, 1, 2);
  const Lines lines = iteration_events(options);
  const Lines gathers = {"issue all_gather layers.0/forward", "issue all_gather layers.1/forward",
                         "issue all_gather layers.2/forward"};
  CHECK(only(lines, {"issue all_gather"}) == gathers);
  const Lines backward = {
      "alloc unsharded_grad layers.2",
      "backward_begin layers.2",
      "backward_end layers.2",
      "free unsharded_param layers.2",
      "alloc reduce_scatter layers.2",
      "issue reduce_scatter layers.2/gradient",
      "alloc unsharded_grad layers.1",
      "backward_begin layers.1",
      "backward_end layers.1",
      "free unsharded_param layers.1",
      "wait reduce_scatter layers.2/gradient",
      "free unsharded_grad layers.2",
      "alloc reduce_scatter layers.1",
      "issue reduce_scatter layers.1/gradient",
      "alloc unsharded_grad layers.0",
      "backward_begin layers.0",
      "backward_end layers.0",
      "free unsharded_param layers.0",
      "wait reduce_scatter layers.1/gradient",
      "free unsharded_grad layers.1",
      "alloc reduce_scatter layers.0",
      "issue reduce_scatter layers.0/gradient",
      "wait reduce_scatter layers.0/gradient",
      "free unsharded_grad layers.0",
      "free sharded_grad layers.0",
      "free sharded_grad layers.1",
      "free sharded_grad layers.2",
  };
  const auto end_of_forward = std::find(lines.begin(), lines.end(), "forward_end layers.2");
  REQUIRE(end_of_forward != lines.end());
  CHECK(Lines(end_of_forward + 1, lines.end()) == backward);
}

TEST_CASE("reshard_after_forward = 2: a half is kept, from which backward gathers") {
  FullyShardOptions options;
  options.reshard_after_forward = ReshardAfterForward::within(2);
  options.prefetch_depth = 0;
  const Lines lines = iteration_events(options, 1, {}, 4);
  const Lines one_forward = {
      "alloc unsharded_param layers.0",  // the whole
      "issue all_gather layers.0/forward",
      "wait all_gather layers.0/forward",
      "forward_begin layers.0",
      "forward_end layers.0",
      "alloc unsharded_param layers.0",  // the half
      "free unsharded_param layers.0",
  };
  REQUIRE(lines.size() > one_forward.size());
  CHECK(Lines(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(one_forward.size())) ==
        one_forward);
  const Lines one_backward = {
      "alloc unsharded_param layers.1",  // the whole
      "issue all_gather layers.1/backward",
      "wait all_gather layers.1/backward",
      "free unsharded_param layers.1",  // the half
      "alloc unsharded_grad layers.1",
      "backward_begin layers.1",
      "backward_end layers.1",
      "free unsharded_param layers.1",  // the whole
  };
  CHECK(std::search(lines.begin(), lines.end(), one_backward.begin(), one_backward.end()) !=
        lines.end());
}

TEST_CASE("offload: a copy before every gather, and one after every reduction, a unit later") {
  FullyShardOptions options;
  options.offload = {.params = true, .grads = true};
  options.prefetch_depth = 0;
  const Lines lines =
      only(iteration_events(options), {"alloc all_gather", "free all_gather", "issue", "wait",
                                       "alloc sharded_grad", "free reduce_scatter"});
  const auto gather = [](const std::string& unit, const std::string& phase) {
    const std::string label = unit + "/" + phase;
    return Lines{"alloc all_gather " + unit, "issue copy_to_device " + label,
                 "issue all_gather " + label, "wait all_gather " + label,
                 "free all_gather " + unit};
  };
  const auto copy_out = [](const std::string& unit) {
    return Lines{"alloc sharded_grad " + unit, "issue copy_to_host " + unit + "/gradient"};
  };
  const auto copied = [](const std::string& unit) {
    return Lines{"wait copy_to_host " + unit + "/gradient", "free reduce_scatter " + unit};
  };
  const Lines reduce2 = {"issue reduce_scatter layers.2/gradient"};
  const Lines reduce1 = {"issue reduce_scatter layers.1/gradient"};
  const Lines reduce0 = {"issue reduce_scatter layers.0/gradient"};
  const Lines reduced2 = {"wait reduce_scatter layers.2/gradient"};
  const Lines reduced1 = {"wait reduce_scatter layers.1/gradient"};
  const Lines reduced0 = {"wait reduce_scatter layers.0/gradient"};
  CHECK(lines == joined({gather("layers.0", "forward"), gather("layers.1", "forward"),
                         gather("layers.2", "forward"), reduce2, gather("layers.1", "backward"),
                         reduced2, copy_out("layers.2"), reduce1, gather("layers.0", "backward"),
                         reduced1, copied("layers.2"), copy_out("layers.1"), reduce0, reduced0,
                         copied("layers.1"), copy_out("layers.0"), copied("layers.0")}));
}

TEST_CASE("no_sync: only the last micro-step of a group reduces") {
  const Lines without_reductions = only(kBackwardWire, {"issue all_gather", "wait all_gather"});
  CHECK(wire_of(2, true) == joined({kForwardWire, without_reductions}));
  CHECK(wire_of(2, false) == joined({kForwardWire, kBackwardWire}));
  CHECK(wire_of(1, true) == joined({kForwardWire, kBackwardWire}));
  CHECK(wire_of(1, false) == joined({kForwardWire, kBackwardWire}));
}

TEST_CASE("Without a tape every unit is freed after its forward, the last one too") {
  const int depth = GENERATE(0, 1, 2);
  const auto reshard = GENERATE(ReshardAfterForward::always(), ReshardAfterForward::never());
  const auto lines = on_ranks(2, [&](ProcessGroup& group) {
    FullyShardOptions options;
    options.prefetch_depth = depth;
    options.reshard_after_forward = reshard;
    ShardedToy toy({}, group, options);
    toy.iteration();
    Trace& trace = Context::current().trace();
    trace.set_recording(true);
    {
      const NoGradScope no_grad;
      toy.loss();
    }
    trace.set_recording(false);
    return only(trace.lines(), {"forward_end", "free"});
  });
  CHECK(lines[0] == Lines{"forward_end layers.0", "free unsharded_param layers.0",
                          "forward_end layers.1", "free unsharded_param layers.1",
                          "forward_end layers.2", "free unsharded_param layers.2"});
}
