// Task 4: one backward of nano on four ranks: when each unit's gradient is reduced.
#include "device/context.h"
#include "show/sharded_nano.h"
#include "show/timeline.h"
#include "task4_backward/backward.h"

#include <algorithm>
#include <array>

namespace fsdp::show {
namespace {

/// What one rank sees of a forward and a backward.
struct Seen {
  std::vector<Event> events;
  std::size_t backward = 0;  // the first event of it
  std::int64_t same = 0;     // elements of its gradient shards with the right bits
};

std::int64_t same_gradients(const FlatParameter& flat, const Values& whole) {
  std::int64_t same = 0;
  for (const ShardPiece& piece : flat.pieces_of(flat.rank())) {
    same += same_bits(whole.at("grad/" + flat.spans()[piece.span].path), piece.param_begin,
                      flat.shard_grad().narrow(0, piece.shard_begin, piece.numel));
  }
  return same;
}

std::vector<Seen> train(std::int64_t layers, const Values* expected) {
  std::vector<Seen> ranks(kRanks);
  together(kRanks, [&](ProcessGroup& group) {
    Seen& seen = ranks[static_cast<std::size_t>(group.rank())];
    Trace& trace = Context::current().trace();
    ShardedNano nano(group, layers);
    nano.install_hooks();
    GradientReducer reducer(nano.units(), nano.shared_group());
    reducer.begin_step({});
    trace.set_recording(true);
    const Variable loss = loss_of(nano.model(), 0, group.rank());
    seen.backward = trace.events().size();
    loss.backward();
    reducer.end_of_backward();
    seen.events = trace.events();
    reducer.finish_gradients();
    if (expected == nullptr) return;
    for (const FlatParameter* flat : nano.flats()) seen.same += same_gradients(*flat, *expected);
  });
  return ranks;
}

std::int64_t most_gradients(const std::vector<Seen>& ranks) {
  std::int64_t most = 0;
  for (const Seen& each : ranks) most = std::max(most, most_nbytes(each.events, "unsharded_grad"));
  return most;
}

void show_task(Show& show) {
  const OneProcess one = step_alone(1.0);
  const std::vector<Seen> ranks = train(2, &one.values);
  show.line("One backward of nano over {} ranks, as rank 0 sees it. Time runs to the right:",
            kRanks);
  for (const std::string& row : rows(ranks[0].events, ranks[0].backward)) show.line("{}", row);
  show.line("  {}", kForwardLegend);
  show.line("  {}", kBackwardLegend);

  constexpr std::array<std::int64_t, 3> kLayers = {2, 4, 8};
  show.line("\n  layers of nano   4N bytes   UNSHARDED_GRAD at most, any rank");
  std::vector<std::int64_t> most;
  for (const std::int64_t layers : kLayers) {
    most.push_back(most_gradients(train(layers, nullptr)));
    show.line("  {:>14}   {:>8}   {:>8}", layers, grouped(4 * nano(layers).parameter_count()),
              grouped(most.back()));
  }
  show.line("");
  show.check(most.front() == most.back(),
             "the peak is that of two layers, however many the model has");
  std::int64_t same = 0;
  for (const Seen& each : ranks) same += each.same;
  show.check(same == nano().parameter_count(),
             "the four gradient shards have the bits of a single process's gradient");
}

}  // namespace
}  // namespace fsdp::show

int main() { return fsdp::show::run(4, fsdp::show::show_task); }
