// Task 3: one forward of nano on four ranks: when a unit's parameters are allocated, and how many.
#include "device/context.h"
#include "show/sharded_nano.h"
#include "show/timeline.h"

#include <algorithm>

namespace fsdp::show {
namespace {

/// What one rank sees of a forward.
struct Seen {
  std::vector<Event> events;
  float loss = 0;
  std::int64_t shard_nbytes = 0;
  std::int64_t kept_nbytes = 0;  // UNSHARDED_PARAM, after the forward
};

std::vector<Seen> forward(ReshardAfterForward option) {
  std::vector<Seen> ranks(kRanks);
  together(kRanks, [&](ProcessGroup& group) {
    Seen& seen = ranks[static_cast<std::size_t>(group.rank())];
    Context& context = Context::current();
    ShardedNano nano(group, 2, option);
    nano.install_hooks();
    seen.shard_nbytes = context.tracker().current()[MemoryKind::sharded_param];
    context.trace().set_recording(true);
    const Variable loss = loss_of(nano.model(), 0, group.rank());
    seen.events = context.trace().events();
    seen.loss = static_cast<float>(loss.data().item());
    seen.kept_nbytes = context.tracker().current()[MemoryKind::unsharded_param];
  });
  return ranks;
}

std::string name_of(ShardedUnit::State state) {
  if (state == ShardedUnit::State::sharded) return "sharded";
  return state == ShardedUnit::State::unsharding ? "unsharding" : "unsharded";
}

// One unit's life without hooks: its state and its bytes after every call.
void show_calls(Show& show) {
  std::vector<std::string> lines;
  together(kRanks, [&](ProcessGroup& group) {
    ShardedNano nano(group);
    ShardedUnit& unit = *nano.units()[1];
    const auto note = [&](const char* call) {
      if (group.rank() != 0) return;
      const MemoryTracker& tracker = Context::current().tracker();
      lines.push_back(fmt::format("  {:16} {:10} {:>7} bytes", call, name_of(unit.state()),
                                  grouped(tracker.current()[MemoryKind::unsharded_param])));
    };
    unit.start_unshard(Phase::forward);
    note("start_unshard");
    unit.finish_unshard(Phase::forward);
    note("finish_unshard");
    unit.reshard();
    note("reshard");
  });
  show.line("Unit layers.0, one call after the other:");
  for (const std::string& line : lines) show.line("{}", line);
}

bool all_equal(const std::vector<Seen>& ranks, const OneProcess& one) {
  std::vector<float> losses;
  losses.reserve(ranks.size());
  for (const Seen& each : ranks) losses.push_back(each.loss);
  return losses == one.losses;
}

void show_task(Show& show) {
  show_calls(show);
  const OneProcess one = step_alone(1.0);
  const std::vector<Seen> always = forward(ReshardAfterForward::always());
  show.line("\nOne forward of nano over {} ranks, as rank 0 sees it. Time runs to the right:",
            kRanks);
  for (const std::string& row : rows(always[0].events)) show.line("{}", row);
  show.line("  {}", kForwardLegend);

  const std::int64_t whole = nano().parameter_count() * 4;
  std::int64_t most = 0;
  for (const Seen& each : always) {
    most = std::max(most, most_nbytes(each.events, "unsharded_param"));
  }
  show.line("\nBytes of parameters on a rank");
  show.line("  the whole model                     {:>7}", grouped(whole));
  show.line("  its shards                          {:>7}", grouped(always[0].shard_nbytes));
  show.line("  UNSHARDED_PARAM at most, any rank   {:>7}   one layer", grouped(most));

  const std::vector<Seen> within = forward(ReshardAfterForward::within(2));
  const std::vector<Seen> never = forward(ReshardAfterForward::never());
  show.line("\nUNSHARDED_PARAM between forward and backward");
  show.line("  always()    {:>7}   the head: backward needs it at once",
            grouped(always[0].kept_nbytes));
  show.line("  within(2)   {:>7}   half of every other unit besides",
            grouped(within[0].kept_nbytes));
  show.line("  never()     {:>7}   everything", grouped(never[0].kept_nbytes));
  show.check(all_equal(always, one) && all_equal(within, one) && all_equal(never, one),
             "every rank's loss has the bits of a single process");
}

}  // namespace
}  // namespace fsdp::show

int main() { return fsdp::show::run(3, fsdp::show::show_task); }
