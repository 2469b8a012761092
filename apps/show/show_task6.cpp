// Task 6: the second step of nano, without and with prefetching: when gathers start.
#include "device/context.h"
#include "show/sharded_nano.h"
#include "show/timeline.h"
#include "task4_backward/backward.h"
#include "task6_prefetching/prefetching.h"

#include <algorithm>
#include <optional>

namespace fsdp::show {
namespace {

/// What rank 0 sees of the second step, in which the order of the first is known.
struct Seen {
  std::vector<Event> events;
  std::size_t backward = 0;  // the first event of it
  float loss = 0;
};

Seen second_step(int depth) {
  Seen seen;
  together(kRanks, [&](ProcessGroup& group) {
    Trace& trace = Context::current().trace();
    ShardedNano nano(group);
    nano.install_hooks();
    std::optional<Prefetcher> prefetcher;
    if (depth > 0) prefetcher.emplace(nano.units(), Prefetcher::Options{.depth = depth});
    for (ShardedUnit* unit : nano.units()) unit->scheduler = prefetcher ? &*prefetcher : nullptr;
    GradientReducer reducer(nano.units(), nano.shared_group());
    for (int step = 0; step < 2; ++step) {
      trace.set_recording(step == 1 && group.rank() == 0);
      reducer.begin_step({});
      if (prefetcher) prefetcher->forward_begins();
      const Variable loss = loss_of(nano.model(), step, group.rank());
      if (prefetcher) prefetcher->forward_ends();
      const std::size_t backward = trace.events().size();
      loss.backward();
      reducer.end_of_backward();
      reducer.finish_gradients();
      if (trace.is_recording()) {
        seen = {trace.events(), backward, static_cast<float>(loss.data().item())};
      }
    }
  });
  return seen;
}

std::vector<Event> only_parameters(const std::vector<Event>& events) {
  std::vector<Event> some;
  for (const Event& event : events) {
    if (event.name != "unsharded_grad" && event.name != "reduce_scatter") some.push_back(event);
  }
  return some;
}

int number_of_gathers(const std::vector<Event>& events) {
  return static_cast<int>(std::count_if(events.begin(), events.end(), [](const Event& event) {
    return event.kind == EventKind::issue && event.name == "all_gather";
  }));
}

void draw(Show& show, const Seen& seen, const std::string& how) {
  const auto split = seen.events.begin() + static_cast<std::ptrdiff_t>(seen.backward);
  const std::vector<Event> forward = only_parameters({seen.events.begin(), split});
  show.line("{}: forward, then backward", how);
  for (const std::string& row : rows(forward)) show.line("{}", row);
  for (const std::string& row : rows(only_parameters(seen.events), forward.size())) {
    show.line("{}", row);
  }
}

void show_task(Show& show) {
  const Seen without = second_step(0);
  const Seen with = second_step(1);
  show.line("The second step of nano over {} ranks, as rank 0 sees it.", kRanks);
  draw(show, without, "Without prefetching");
  draw(show, with, "With prefetching, depth 1");
  show.line("  {}", kForwardLegend);
  show.line("{:42} {:>10} {:>10}", "", "without", "with");
  show.line("{:42} {:>10} {:>10}", "gathers under way while a unit computed",
            hidden_gathers(without.events), hidden_gathers(with.events));
  show.line("{:42} {:>10} {:>10}", "UNSHARDED_PARAM at most",
            grouped(most_nbytes(without.events, "unsharded_param")),
            grouped(most_nbytes(with.events, "unsharded_param")));
  const int all = number_of_gathers(with.events);
  show.check(hidden_gathers(without.events) == 0 && hidden_gathers(with.events) == all - 1,
             fmt::format("of {} gathers, only the first is not hidden behind another unit", all));
  show.check(with.loss == without.loss, "the loss has the same bits: only the order changed");
}

}  // namespace
}  // namespace fsdp::show

int main() { return fsdp::show::run(6, fsdp::show::show_task); }
