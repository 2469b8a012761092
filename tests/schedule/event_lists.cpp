#include "event_lists.h"

#include "base/check.h"

#include <algorithm>

namespace fsdp::testing {

Lines iteration_events(const FullyShardOptions& options, int iteration, const ToyConfig& config,
                       int world_size) {
  const RankOptions ranks{.world_size = world_size, .has_cpu_host = options.offload.params};
  const auto of_ranks = on_ranks(ranks, [&](ProcessGroup& group) {
    ShardedToy toy(config, group, options);
    for (int i = 0; i < iteration; ++i) toy.iteration(i);
    Trace& trace = Context::current().trace();
    trace.set_recording(true);
    toy.iteration(iteration);
    trace.set_recording(false);
    return trace.lines();
  });
  for (const Lines& lines : of_ranks) {
    FSDP_CHECK(lines == of_ranks.front(), "ranks recorded different events");
  }
  return of_ranks.front();
}

Lines only(const Lines& lines, const std::vector<std::string>& beginnings) {
  Lines kept;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(kept), [&](const std::string& line) {
    return std::any_of(beginnings.begin(), beginnings.end(),
                       [&](const std::string& beginning) { return line.starts_with(beginning); });
  });
  return kept;
}

Lines joined(const std::vector<Lines>& lists) {
  Lines all;
  for (const Lines& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace fsdp::testing
