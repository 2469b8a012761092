// What happens in an iteration of three units on two ranks, line by line. The last unit is kept
// between forward and backward.
#include "event_lists.h"
#include "support/catch.h"

using namespace fsdp;
using namespace fsdp::testing;

namespace {

FullyShardOptions with_depth(int depth, int limit = 0) {
  FullyShardOptions options;
  options.prefetch_depth = depth;
  options.in_flight_limit = limit;
  return options;
}

/// The end of every iteration: zero_grad().
const Lines kZeroGrad = {
    "free sharded_grad layers.0",
    "free sharded_grad layers.1",
    "free sharded_grad layers.2",
};

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
};

const Lines kSerialBackward = {
    "alloc unsharded_grad layers.2",
    "backward_begin layers.2",
    "backward_end layers.2",
    "free unsharded_param layers.2",
    "alloc reduce_scatter layers.2",
    "issue reduce_scatter layers.2/gradient",
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

/// Unit i+1 is gathered before unit i computes.
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
};

/// Unit i-1 is gathered before unit i computes, and its gather runs ahead of i's reduction.
const Lines kPrefetchedBackward = {
    "alloc unsharded_param layers.1",
    "issue all_gather layers.1/backward",
    "alloc unsharded_grad layers.2",
    "backward_begin layers.2",
    "backward_end layers.2",
    "free unsharded_param layers.2",
    "alloc reduce_scatter layers.2",
    "issue reduce_scatter layers.2/gradient",
    "wait all_gather layers.1/backward",
    "alloc unsharded_param layers.0",
    "issue all_gather layers.0/backward",
    "alloc unsharded_grad layers.1",
    "backward_begin layers.1",
    "backward_end layers.1",
    "free unsharded_param layers.1",
    "wait reduce_scatter layers.2/gradient",
    "free unsharded_grad layers.2",
    "alloc reduce_scatter layers.1",
    "issue reduce_scatter layers.1/gradient",
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

TEST_CASE("Without prefetching, every gather is waited for where it is issued") {
  const int iteration = GENERATE(0, 1);
  CHECK(iteration_events(with_depth(0), iteration) ==
        joined({kSerialForward, kSerialBackward, kZeroGrad}));
}

TEST_CASE("Prefetching one unit ahead") {
  CHECK(iteration_events(with_depth(1)) ==
        joined({kPrefetchedForward, kPrefetchedBackward, kZeroGrad}));
}

TEST_CASE("The first forward records the order, the first backward already uses it") {
  CHECK(iteration_events(with_depth(1), 0) ==
        joined({kSerialForward, kPrefetchedBackward, kZeroGrad}));
}

TEST_CASE("Prefetching two units ahead") {
  const Lines forward = {
      "alloc unsharded_param layers.0",
      "issue all_gather layers.0/forward",
      "wait all_gather layers.0/forward",
      "alloc unsharded_param layers.1",
      "issue all_gather layers.1/forward",
      "alloc unsharded_param layers.2",
      "issue all_gather layers.2/forward",
      "forward_begin layers.0",
      "forward_end layers.0",
      "free unsharded_param layers.0",
      "wait all_gather layers.1/forward",
      "forward_begin layers.1",
      "forward_end layers.1",
      "free unsharded_param layers.1",
      "wait all_gather layers.2/forward",
      "forward_begin layers.2",
      "forward_end layers.2",
  };
  const Lines backward = {
      "alloc unsharded_param layers.1",
      "issue all_gather layers.1/backward",
      "alloc unsharded_param layers.0",
      "issue all_gather layers.0/backward",
      "alloc unsharded_grad layers.2",
      "backward_begin layers.2",
      "backward_end layers.2",
      "free unsharded_param layers.2",
      "alloc reduce_scatter layers.2",
      "issue reduce_scatter layers.2/gradient",
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
  CHECK(iteration_events(with_depth(2)) == joined({forward, backward, kZeroGrad}));
}

TEST_CASE("With one gather in flight, depth two changes nothing for three units") {
  // The second unit ahead may only start when the first has been waited for: that is depth one.
  CHECK(iteration_events(with_depth(2, 1)) ==
        joined({kPrefetchedForward, kPrefetchedBackward, kZeroGrad}));
}
