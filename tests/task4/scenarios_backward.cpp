// Task 4: whole backwards. Options: sharded_toy.h, and: dropped (before each micro-step, how many
// forwards there are whose loss is not used), ahead (a scheduler gathers a unit again whose
// backward is over), evaluate (a forward without a tape runs between forward and backward), fails
// (a backward that throws comes first), extra (a step with one backward too many comes first), kept
// (gradients are not dropped between steps).
#include "device/context.h"
#include "task4/probe.h"
#include "task4/scenarios.h"
#include "task4/sharded_toy.h"

#include <algorithm>
#include <map>

namespace fsdp::graded {
namespace {

/// Runs `call`; notes the most bytes that were held of each kind at any moment of it.
void note_most(Recorder& recorder, const std::string& key, const std::function<void()>& call) {
  using What = MemoryTracker::LogEntry::What;
  MemoryTracker& tracker = Context::current().tracker();
  tracker.set_logging(true);  // opens with what is held now
  call();
  std::map<MemoryTracker::BlockId, MemoryTracker::LogEntry> alive;
  std::map<std::string, std::int64_t> held, most;
  for (const MemoryTracker::LogEntry& entry : tracker.log()) {
    const auto before = alive.find(entry.block);
    if (before != alive.end()) {
      held[std::string(name_of(before->second.kind))] -= before->second.nbytes;
      alive.erase(before);
    }
    if (entry.what == What::free) continue;
    alive.emplace(entry.block, entry);
    const std::string kind(name_of(entry.kind));
    held[kind] += entry.nbytes;
    most[kind] = std::max(most[kind], held[kind]);
  }
  tracker.set_logging(false);
  recorder.note(key, most);
}

/// The sums of reduced shards that are there, taken out of the reducer.
void note_sums(Recorder& recorder, ShardedToy& toy) {
  for (const auto& unit : toy.units()) {
    for (std::size_t i = 0; i < trainable_flats(*unit).size(); ++i) {
      if (StepProbe::leaves(toy.reducer(), *unit, i) == 0) continue;
      recorder.values("sum " + unit->name() + "." + std::to_string(i),
                      StepProbe::take_sum(toy.reducer(), *unit, i));
    }
  }
}

/// How many flat parameters have a gradient.
int count_gradients(ShardedToy& toy) {
  int count = 0;
  for (const auto& unit : toy.units()) {
    for (const FlatParameter* flat : trainable_flats(*unit)) {
      if (flat->shard_grad().is_defined()) ++count;
    }
  }
  return count;
}

void note_gradients(Recorder& recorder, ShardedToy& toy, const std::string& key) {
  for (const auto& unit : toy.units()) {
    const auto flats = trainable_flats(*unit);
    for (std::size_t i = 0; i < flats.size(); ++i) {
      if (!flats[i]->shard_grad().is_defined()) continue;
      recorder.values(key + " " + unit->name() + "." + std::to_string(i), flats[i]->shard_grad());
    }
  }
}

/// Forwards whose loss is not used, before micro-step `m`.
void drop_losses(Recorder& recorder, ShardedToy& toy, int m) {
  const auto dropped = recorder.option("dropped", std::vector<int>{});
  if (static_cast<std::size_t>(m) >= dropped.size()) return;
  for (int i = 0; i < dropped[static_cast<std::size_t>(m)]; ++i) (void)toy.loss(99 + i);
}

/// The loss of a micro-step; the option "evaluate" lets a forward without a tape follow.
Variable loss_of(Recorder& recorder, ShardedToy& toy, int m, int step = 0) {
  Variable loss = toy.loss(m, step);
  if (recorder.option("evaluate", false)) {
    const NoGradScope no_grad;
    (void)toy.loss(m, step);
  }
  return loss;
}

/// A backward that throws when its second unit is done, and a new beginning.
void fail_first(Recorder& recorder, ShardedToy& toy) {
  if (!recorder.option("fails", false)) return;
  backward_up_to(*toy.model().layers().at(1), toy.loss(98));
  toy.reducer().begin_step(toy.plan());
}

const std::vector<EventKind> kEvents = {EventKind::issue,          EventKind::wait,
                                        EventKind::free,           EventKind::forward_begin,
                                        EventKind::backward_begin, EventKind::backward_end};

// ------------------------------------------------------------------------------------------- 4.5

/// One backward up to its last node.
void until_end(Recorder& recorder) {
  ShardedToy toy(recorder);
  const Variable loss = toy.loss(0);
  recorder.events(
      "events",
      [&] {
        recorder.collectives("collectives", [&] {
          note_most(recorder, "most", [&] { backward_up_to(toy.model(), loss); });
        });
      },
      kEvents);
  recorder.note("states", states_of(toy));
  recorder.memory("memory");
  StepProbe::finish_reduce(toy.reducer());
  note_sums(recorder, toy);
}

void until_end_peak(Recorder& recorder) {
  ShardedToy toy(recorder);
  const Variable loss = toy.loss(0);
  recorder.note("shard bytes", toy.unit().padded_numel() / recorder.world_size() * 4);
  recorder.peak("peak", [&] { backward_up_to(toy.model(), loss); });
  StepProbe::finish_reduce(toy.reducer());
}

/// For each micro-step m a model whose sums hold m micro-steps already; one backward up to its last
/// node.
void until_each_end(Recorder& recorder) {
  for (int m = 0; m < recorder.option("micro_steps", 1); ++m) {
    ShardedToy toy(recorder);
    for (int before = 0; before < m; ++before) {
      for (const auto& unit : toy.units()) {
        for (const FlatParameter* flat : trainable_flats(*unit)) {
          fill_full_grad(recorder, *flat, before);
        }
        StepProbe::start_reduce(toy.reducer(), *unit);
      }
      StepProbe::count_micro_step(toy.reducer());
    }
    const std::string name = std::to_string(m);
    const Variable loss = toy.loss(m);
    recorder.collectives("collectives " + name, [&] {
      note_most(recorder, "most " + name, [&] { backward_up_to(toy.model(), loss); });
    });
    StepProbe::finish_reduce(toy.reducer());
  }
}

// ------------------------------------------------------------------------------------------- 4.6

/// Guesses wrong: before the first unit's backward it starts the last unit, which is done.
class WrongGuess : public UnshardScheduler {
 public:
  explicit WrongGuess(ShardedUnit& last) : last_(last) {}
  void before_forward(ShardedUnit&) override {}
  void before_backward(ShardedUnit&) override { last_.start_unshard(Phase::backward); }

 private:
  ShardedUnit& last_;
};

void whole_backward(Recorder& recorder) {
  ShardedToy toy(recorder);
  WrongGuess guess(*toy.units().back());
  if (recorder.option("ahead", false)) toy.unit().scheduler = &guess;
  fail_first(recorder, toy);
  for (int m = 0; m < toy.plan().micro_steps; ++m) {
    const std::string name = std::to_string(m);
    drop_losses(recorder, toy, m);
    const Variable loss = loss_of(recorder, toy, m);
    const auto backward = [&] {
      recorder.attempt("backward " + name, [&] { toy.backward(loss); });
    };
    recorder.events(
        "events " + name,
        [&] {
          recorder.collectives("collectives " + name,
                               [&] { note_most(recorder, "most " + name, backward); });
        },
        kEvents);
    if (recorder.seen().at("backward " + name).at("type") != "none") return;
    recorder.note("states " + name, states_of(toy));
    for (const auto& unit : toy.units()) {
      recorder.note("open calls of " + unit->name() + " " + name,
                    StepProbe::open_calls(toy.reducer(), *unit));
      recorder.note("marks of " + unit->name() + " " + name,
                    StepProbe::marks(toy.reducer(), *unit));
    }
    recorder.memory("memory " + name);
    recorder.note("reducing " + name, StepProbe::reducing(toy.reducer()));
    recorder.note("micro-steps " + name, toy.reducer().micro_step());
  }
  note_sums(recorder, toy);
}

// ------------------------------------------------------------------------------------------- 4.7

/// "2 and 1": micro_step(), and the leaves of the first trainable unit.
std::string state_of_step(ShardedToy& toy) {
  std::int64_t leaves = 0;
  for (const auto& unit : toy.units()) {
    if (!trainable_flats(*unit).empty()) {
      leaves = StepProbe::leaves(toy.reducer(), *unit, 0);
      break;
    }
  }
  return std::to_string(toy.reducer().micro_step()) + " and " + std::to_string(leaves);
}

void finish(Recorder& recorder) {
  ShardedToy toy(recorder);
  const auto finish_gradients = [&] { toy.reducer().finish_gradients(); };
  if (recorder.option("extra", false)) {
    for (int m = 0; m <= toy.plan().micro_steps; ++m) toy.backward(toy.loss(m));
    recorder.attempt("after too many", finish_gradients);
  }
  for (int step = 0; step < recorder.option("steps", 1); ++step) {
    const std::string name = "step " + std::to_string(step);
    toy.reducer().begin_step(toy.plan());
    for (int m = 0; m < toy.plan().micro_steps; ++m) {
      recorder.attempt(name + " after " + std::to_string(m), finish_gradients);
      recorder.note(name + " left after " + std::to_string(m), state_of_step(toy));
      drop_losses(recorder, toy, m);
      toy.backward(loss_of(recorder, toy, m, step));
    }
    recorder.memory(name + " accumulated");
    recorder.note(name + " early", count_gradients(toy));
    recorder.collectives(name + " collectives",
                         [&] { recorder.attempt(name + " after all", finish_gradients); });
    recorder.memory(name + " finished");
    recorder.note(name + " micro-steps", toy.reducer().micro_step());
    note_gradients(recorder, toy, name);
    recorder.attempt(name + " again", finish_gradients);
    if (recorder.option("kept", false)) continue;
    for (const auto& unit : toy.units()) {
      for (FlatParameter* flat : trainable_flats(*unit)) flat->set_shard_grad(Tensor());
    }
    recorder.memory(name + " dropped");
  }
}

}  // namespace

Scenarios backward_scenarios() {
  return {{"until_end", until_end},
          {"until_end_peak", until_end_peak},
          {"until_each_end", until_each_end},
          {"whole_backward", whole_backward},
          {"finish", finish}};
}

}  // namespace fsdp::graded
