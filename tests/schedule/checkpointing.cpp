// What happens in an iteration of three checkpointed units on two ranks, line by line. The last
// unit is the one that is kept between forward and backward.
#include "event_lists.h"
#include "support/catch.h"
#include "task8_beyond/checkpoint.h"

#include <algorithm>

namespace fsdp::testing::checkpointing_events {
namespace {

enum class Nesting { none, inside, around };

FullyShardOptions with_depth(int depth) {
  FullyShardOptions options;
  options.prefetch_depth = depth;
  return options;
}

/// All events of the second iteration, the same on every rank.
Lines events(Nesting nesting, const FullyShardOptions& options, const ToyConfig& config = {},
             std::vector<int> order = {}) {
  const auto of_ranks = on_ranks(2, [&](ProcessGroup& group) {
    ShardedToy toy(config, group, options);
    for (const auto& unit : toy.sharded->units()) {
      if (nesting == Nesting::inside) checkpoint(unit->module());
      if (nesting == Nesting::around) checkpoint_around(*unit);
    }
    if (!order.empty()) toy.model->order = order;
    toy.iteration(0);
    Trace& trace = Context::current().trace();
    trace.set_recording(true);
    toy.iteration(1);
    trace.set_recording(false);
    return trace.lines();
  });
  REQUIRE(of_ranks[0] == of_ranks[1]);
  return of_ranks[0];
}

std::ptrdiff_t gathers_of(const Lines& lines, const std::string& unit) {
  return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.starts_with("issue all_gather " + unit + "/");
  });
}

const Lines kZeroGrad = {
    "free sharded_grad layers.0",
    "free sharded_grad layers.1",
    "free sharded_grad layers.2",
};

/// Nothing will be kept for a tape, so every unit is resharded, the last one too.
const Lines kSerialForward = {
    "alloc unsharded_param layers.0",
    "issue all_gather layers.0/forward",
    "wait all_gather layers.0/forward",
    "forward_begin layers.0",
    "forward_end layers.0",
    "free unsharded_param layers.0",
    "alloc unsharded_param layers.1",
    "issue all_gather layers.1/forward",
    "wait all_gather layers.1/forward",
    "forward_begin layers.1",
    "forward_end layers.1",
    "free unsharded_param layers.1",
    "alloc unsharded_param layers.2",
    "issue all_gather layers.2/forward",
    "wait all_gather layers.2/forward",
    "forward_begin layers.2",
    "forward_end layers.2",
    "free unsharded_param layers.2",
};

const Lines kPrefetchedForward = {
    "alloc unsharded_param layers.0",
    "issue all_gather layers.0/forward",
    "wait all_gather layers.0/forward",
    "alloc unsharded_param layers.1",
    "issue all_gather layers.1/forward",
    "forward_begin layers.0",
    "forward_end layers.0",
    "free unsharded_param layers.0",
    "wait all_gather layers.1/forward",
    "alloc unsharded_param layers.2",
    "issue all_gather layers.2/forward",
    "forward_begin layers.1",
    "forward_end layers.1",
    "free unsharded_param layers.1",
    "wait all_gather layers.2/forward",
    "forward_begin layers.2",
    "forward_end layers.2",
    "free unsharded_param layers.2",
};

/// Forward again: the unit that is kept until backward stays, the others are resharded in between.
const Lines kSerialBackwardAround = {
    "alloc unsharded_param layers.2",
    "issue all_gather layers.2/forward",
    "wait all_gather layers.2/forward",
    "forward_begin layers.2",
    "forward_end layers.2",
    "alloc unsharded_grad layers.2",
    "backward_begin layers.2",
    "backward_end layers.2",
    "free unsharded_param layers.2",
    "alloc reduce_scatter layers.2",
    "issue reduce_scatter layers.2/gradient",
    "alloc unsharded_param layers.1",
    "issue all_gather layers.1/forward",
    "wait all_gather layers.1/forward",
    "forward_begin layers.1",
    "forward_end layers.1",
    "free unsharded_param layers.1",
    "alloc unsharded_param layers.1",
    "issue all_gather layers.1/backward",
    "wait all_gather layers.1/backward",
    "alloc unsharded_grad layers.1",
    "backward_begin layers.1",
    "backward_end layers.1",
    "free unsharded_param layers.1",
    "wait reduce_scatter layers.2/gradient",
    "free unsharded_grad layers.2",
    "alloc reduce_scatter layers.1",
    "issue reduce_scatter layers.1/gradient",
    "alloc unsharded_param layers.0",
    "issue all_gather layers.0/forward",
    "wait all_gather layers.0/forward",
    "forward_begin layers.0",
    "forward_end layers.0",
    "free unsharded_param layers.0",
    "alloc unsharded_param layers.0",
    "issue all_gather layers.0/backward",
    "wait all_gather layers.0/backward",
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
};

/// Unit i-1 is gathered while unit i runs forward again, for its own second forward.
const Lines kPrefetchedBackwardAround = {
    "alloc unsharded_param layers.2",
    "issue all_gather layers.2/forward",
    "wait all_gather layers.2/forward",
    "alloc unsharded_param layers.1",
    "issue all_gather layers.1/backward",
    "forward_begin layers.2",
    "forward_end layers.2",
    "alloc unsharded_grad layers.2",
    "backward_begin layers.2",
    "backward_end layers.2",
    "free unsharded_param layers.2",
    "alloc reduce_scatter layers.2",
    "issue reduce_scatter layers.2/gradient",
    "wait all_gather layers.1/backward",
    "alloc unsharded_param layers.0",
    "issue all_gather layers.0/backward",
    "forward_begin layers.1",
    "forward_end layers.1",
    "free unsharded_param layers.1",
    "alloc unsharded_param layers.1",
    "issue all_gather layers.1/backward",
    "wait all_gather layers.1/backward",
    "alloc unsharded_grad layers.1",
    "backward_begin layers.1",
    "backward_end layers.1",
    "free unsharded_param layers.1",
    "wait reduce_scatter layers.2/gradient",
    "free unsharded_grad layers.2",
    "alloc reduce_scatter layers.1",
    "issue reduce_scatter layers.1/gradient",
    "wait all_gather layers.0/backward",
    "forward_begin layers.0",
    "forward_end layers.0",
    "free unsharded_param layers.0",
    "alloc unsharded_param layers.0",
    "issue all_gather layers.0/backward",
    "wait all_gather layers.0/backward",
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
};

}  // namespace

// event_order.cpp has the exact lists of iteration_events().
TEST_CASE("A checkpoint inside a unit changes no event: two gathers per unit") {
  for (const int depth : {0, 1, 2}) {
    const Lines lines = events(Nesting::inside, with_depth(depth));
    CHECK(lines == iteration_events(with_depth(depth)));
    CHECK(gathers_of(lines, "layers.0") == 2);
    CHECK(gathers_of(lines, "layers.1") == 2);
    CHECK(gathers_of(lines, "layers.2") == 1);  // kept
  }
}

TEST_CASE("A checkpoint around a unit gathers a third time, for the second forward") {
  const Lines serial = events(Nesting::around, with_depth(0));
  CHECK(serial == joined({kSerialForward, kSerialBackwardAround, kZeroGrad}));
  CHECK(gathers_of(serial, "layers.0") == 3);
  CHECK(gathers_of(serial, "layers.1") == 3);
  CHECK(gathers_of(serial, "layers.2") == 2);  // kept from the second forward on
  CHECK(events(Nesting::around, with_depth(1)) ==
        joined({kPrefetchedForward, kPrefetchedBackwardAround, kZeroGrad}));
}

TEST_CASE("Without resharding, a unit is gathered again for the second forward alone") {
  FullyShardOptions options = with_depth(1);
  options.reshard_after_forward = ReshardAfterForward::never();
  CHECK(gathers_of(events(Nesting::none, options), "layers.1") == 1);
  CHECK(gathers_of(events(Nesting::inside, options), "layers.1") == 1);
  CHECK(gathers_of(events(Nesting::around, options), "layers.1") == 2);
}

TEST_CASE("A unit that is called twice reduces once, after the backward of its first call") {
  for (const Nesting nesting : {Nesting::inside, Nesting::around}) {
    for (const int depth : {0, 1}) {
      const Lines lines = only(events(nesting, with_depth(depth), {}, {0, 1, 0, 2}),
                               {"issue reduce_scatter", "backward_end"});
      CHECK(lines == Lines{"backward_end layers.2", "issue reduce_scatter layers.2/gradient",
                           "backward_end layers.0", "backward_end layers.1",
                           "issue reduce_scatter layers.1/gradient", "backward_end layers.0",
                           "issue reduce_scatter layers.0/gradient"});
    }
  }
}

TEST_CASE("A second forward leaves the record of the order as it was") {
  const auto is_kept = on_ranks(1, [&](ProcessGroup& group) {
    ShardedToy toy({}, group, with_depth(1));
    std::vector<ShardedUnit*> units;
    for (const auto& unit : toy.sharded->units()) {
      units.push_back(unit.get());
      checkpoint_around(*unit);
    }
    toy.iteration(0);
    return toy.sharded->prefetcher()->recorded_order() == units ? 1 : 0;
  });
  CHECK(is_kept[0] == 1);
}

TEST_CASE("A checkpoint is put around the innermost units, and once") {
  on_ranks(1, [&](ProcessGroup& group) {
    ShardedToy toy({.root_weight = true}, group);
    ShardedUnit& layer = toy.sharded->unit("layers.1");
    checkpoint_around(layer);
    FSDP_CHECK(!message_of<Error>([&] { checkpoint_around(layer); }).empty(), "twice");
    checkpoint(*toy.model);
    const std::string refusal = message_of<Error>([&] { toy.iteration(0); });
    FSDP_CHECK(refusal.starts_with("the model is checkpointed, but a module within it is a unit: "
                                   "layers.0"),
               "{}", refusal);
    return 0;
  });
}

}  // namespace fsdp::testing::checkpointing_events
