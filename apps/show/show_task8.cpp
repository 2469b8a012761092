// Task 8: four ranks as one replica, as two and as four: what each holds, and what it receives.
#include "device/context.h"
#include "show/show.h"
#include "task7_integration/integration.h"
#include "task8_beyond/mesh.h"

#include <array>
#include <mutex>

namespace fsdp::show {
namespace {

/// What one step over a mesh leaves: of rank 0, where nothing else is said.
struct Step {
  std::array<std::string, kRanks> places;  // of every rank
  std::int64_t held_nbytes = 0;            // between two steps
  std::int64_t within_nbytes = 0;          // received from its own replica
  std::int64_t across_nbytes = 0;          // received from the others
  std::int64_t same = 0;  // of its replica: elements of the parameters with the right bits
};

void measure(Step& step) {
  Context& context = Context::current();
  const MemoryTracker& tracker = context.tracker();
  step.held_nbytes = tracker.current_total() - tracker.current()[MemoryKind::temp] -
                     tracker.current()[MemoryKind::buffer];
  for (const Event& event : context.trace().events()) {
    if (event.kind != EventKind::issue) continue;
    const bool is_across = event.name == "all_reduce" && event.phase == Phase::gradient;
    (is_across ? step.across_nbytes : step.within_nbytes) += event.nbytes;
  }
}

Step step_over(int replicas, const OneProcess& one) {
  Step step;
  std::mutex mutex;
  together(kRanks, [&](ProcessGroup& world) {
    const std::shared_ptr<ProcessGroup> group = make_mesh(world, replicas);
    DeferredInit deferred;
    const auto model = deferred.build([] { return std::make_shared<nn::TransformerLM>(nano()); });
    FullyShardOptions options;
    options.deferred = &deferred;
    const auto sharded = fully_shard(*model, group, options);
    sharded->attach_optimizer(
        [] { return std::make_shared<optim::AdamW>(optim::AdamW::Options{}); });
    Context::current().trace().set_recording(true);
    sharded->begin_step({});
    loss_of(*model, 0, world.rank()).backward();
    sharded->end_micro_step();
    sharded->finish_gradients();
    sharded->clip_grad_norm(1.0);
    sharded->step(kLearningRate);
    sharded->zero_grad();
    const std::lock_guard<std::mutex> lock(mutex);
    if (world.rank() == 0) measure(step);
    step.places.at(static_cast<std::size_t>(world.rank())) =
        fmt::format("replica {}, shard {}", replica_of(*group), group->rank());
    if (replica_of(*group) != 0) return;
    for (const io::StateSlice& slice : sharded->state_slices(false)) {
      const auto whole = one.values.find(slice.name);
      if (slice.name.starts_with("param/") && whole != one.values.end()) {
        step.same += same_bits(whole->second, slice.begin, slice.values);
      }
    }
  });
  return step;
}

void show_task(Show& show) {
  const OneProcess one = step_alone(1.0);
  const Step two = step_over(2, one);
  show.line("Four ranks as two replicas:");
  for (std::size_t rank = 0; rank < two.places.size(); ++rank) {
    show.line("  rank {}   {}", rank, two.places.at(rank));
  }
  show.line("\nOne step of nano, as rank 0 sees it, in bytes:");
  show.line("  replicas x shards   held between steps   received within   from other replicas");
  bool all_same = true;
  for (const int replicas : {1, 2, 4}) {
    const Step step = step_over(replicas, one);
    show.line("  {:>8} x {:<6}   {:>18}   {:>15}   {:>19}", replicas, kRanks / replicas,
              grouped(step.held_nbytes), grouped(step.within_nbytes), grouped(step.across_nbytes));
    all_same = all_same && step.same == nano().parameter_count();
  }
  show.line("Held: parameters and AdamW's state. From other replicas come sums of shards.\n");
  show.check(all_same, "over every mesh each parameter has the bits of a single process");
}

}  // namespace
}  // namespace fsdp::show

int main() { return fsdp::show::run(8, fsdp::show::show_task); }
