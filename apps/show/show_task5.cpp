// Task 5: one step with clipping: every rank finds the same norm, and keeps a quarter of the state.
#include "device/context.h"
#include "optim/optimizer.h"
#include "show/sharded_nano.h"
#include "task4_backward/backward.h"
#include "task5_sharded_optimizer/sharded_optimizer.h"

#include <algorithm>

namespace fsdp::show {
namespace {

constexpr double kMaxNorm = 0.5;

/// One rank after its step.
struct Seen {
  std::size_t pieces = 0;
  double own_norm = 0;  // of its gradient shards
  double norm = 0;
  std::int64_t optimizer_nbytes = 0;
  std::int64_t slices = 0;
  std::int64_t parameters = 0;  // elements with the right bits
  std::int64_t states = 0;      // likewise, of the optimizer's state
};

std::vector<Seen> step(const Values& expected) {
  std::vector<Seen> ranks(kRanks);
  together(kRanks, [&](ProcessGroup& group) {
    Seen& seen = ranks[static_cast<std::size_t>(group.rank())];
    ShardedNano nano(group);
    nano.install_hooks();
    GradientReducer reducer(nano.units(), nano.shared_group());
    ShardedOptimizer optimizer(
        nano.flats(), std::make_shared<optim::AdamW>(optim::AdamW::Options{}), nano.shared_group());
    reducer.begin_step({});
    loss_of(nano.model(), 0, group.rank()).backward();
    reducer.end_of_backward();
    reducer.finish_gradients();
    seen.pieces = optimizer.pieces().size();
    ExactSquareSum own;
    optimizer.add_squares(own);
    seen.own_norm = optim::norm_of(own);
    seen.norm = optimizer.clip_grad_norm(kMaxNorm);
    optimizer.step(kLearningRate);
    seen.optimizer_nbytes = Context::current().tracker().current()[MemoryKind::optimizer];
    for (const io::StateSlice& slice : optimizer.state_slices()) {
      const std::int64_t same = same_bits(expected.at(slice.name), slice.begin, slice.values);
      (slice.name.starts_with("param/") ? seen.parameters : seen.states) += same;
      ++seen.slices;
    }
  });
  return ranks;
}

void show_task(Show& show) {
  const OneProcess one = step_alone(kMaxNorm);
  const std::vector<Seen> ranks = step(one.values);
  show.line("One step of nano with AdamW, clipped to {}", kMaxNorm);
  show.line("  {:12} {:>6} {:>12} {:>19} {:>16} {:>7}", "", "pieces", "their norm", "whole norm",
            "OPTIMIZER bytes", "slices");
  show.line("  {:12} {:>6} {:>12} {:>19.15f} {:>16}", "one process", "", "", one.norm,
            grouped(one.optimizer_nbytes));
  Seen sum;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Seen& each = ranks[rank];
    show.line("  rank {:<7} {:>6} {:>12.6f} {:>19.15f} {:>16} {:>7}", rank, each.pieces,
              each.own_norm, each.norm, grouped(each.optimizer_nbytes), each.slices);
    sum.parameters += each.parameters;
    sum.states += each.states;
    sum.optimizer_nbytes += each.optimizer_nbytes;
  }
  show.line("Every gradient was multiplied by {:.6f}.\n", optim::clip_factor(one.norm, kMaxNorm));
  show.check(std::all_of(ranks.begin(), ranks.end(),
                         [&](const Seen& each) { return each.norm == one.norm; }),
             "the norm is the same on every rank, and that of a single process");
  show.check(sum.optimizer_nbytes == one.optimizer_nbytes,
             "the ranks together hold the optimizer state once");
  const std::int64_t numel = nano().parameter_count();
  show.check(sum.parameters == numel, "every parameter has the bits of a single process's step");
  show.check(sum.states == 2 * numel,
             "so has every element of the optimizer state, under its name in a checkpoint");
}

}  // namespace
}  // namespace fsdp::show

int main() { return fsdp::show::run(5, fsdp::show::show_task); }
