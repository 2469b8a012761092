// Whether ranks are threads or processes, they do the same things in the same order.
#include "comm/processes/job.h"
#include "comm/thread_world.h"
#include "comm/world.h"
#include "support/catch.h"
#include "support/toy.h"

#include <functional>
#include <string>
#include <vector>

namespace fsdp::testing {
namespace {

using Lines = std::vector<std::string>;
using World = std::function<void(const RankOptions&, const std::function<void(ProcessGroup&)>&)>;

/// All events of the second iteration on rank `rank` of a world.
Lines events_of(int rank, int world_size, const FullyShardOptions& options, const World& world) {
  Lines lines;
  world({.world_size = world_size}, [&](ProcessGroup& group) {
    ShardedToy toy({}, group, options);
    toy.iteration(0);
    Trace& trace = Context::current().trace();
    trace.set_recording(true);
    toy.iteration(1);
    trace.set_recording(false);
    if (group.rank() == rank) lines = trace.lines();
  });
  return lines;
}

}  // namespace

TEST_CASE("processes do what threads do, in the same order", "[mpi]") {
  REQUIRE(processes::launched().has_value());
  REQUIRE(processes::launched()->size == 4);
  const World processes = [](const RankOptions& options, const auto& body) {
    run_ranks(options, body);
  };
  const World in_threads = [](const RankOptions& options, const auto& body) {
    threads::run_ranks(options, body);
  };
  for (const int world_size : {1, 2, 3, 4}) {
    for (const int depth : {0, 1, 2}) {
      for (const bool reshards : {true, false}) {
        INFO("W=" << world_size << " depth " << depth << " reshards " << reshards);
        FullyShardOptions options;
        options.prefetch_depth = depth;
        options.reshard_after_forward =
            reshards ? ReshardAfterForward::always() : ReshardAfterForward::never();
        const Lines seen = events_of(process_rank(), world_size, options, processes);
        const Lines expected = events_of(process_rank(), world_size, options, in_threads);
        CHECK(seen == expected);
        CHECK(seen.empty() == (process_rank() >= world_size));
      }
    }
  }
}

}  // namespace fsdp::testing
