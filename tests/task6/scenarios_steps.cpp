// Task 6: one step at a time, on units put into the state the case says.
//
// Options: guess (numbers of units), cursor; ahead (units started ahead), there (units that are
// whole), coming (units on their way that nobody counts as ahead); and those of the stack.
#include "task6/probe.h"
#include "task6/stack.h"

#include <optional>

namespace fsdp::graded {
namespace {

StepProbe::Guess guess_of(Stage& stage, Stack& stack) {
  return StepProbe::guess(stack.of(stage.option("guess", Numbers{})),
                          stage.option("cursor", std::size_t{0}));
}

void prepare(Stage& stage, Stack& stack) {
  const Numbers ahead = stage.option("ahead", Numbers{});
  for (const int number : ahead) stack.unit(number).start_unshard(Phase::forward);
  for (const int number : stage.option("coming", Numbers{})) {
    stack.unit(number).start_unshard(Phase::forward);
  }
  for (const int number : stage.option("there", Numbers{})) {
    stack.unit(number).finish_unshard(Phase::forward);
  }
  StepProbe::ahead(stack.prefetcher()) = stack.of(ahead);
}

void note_units(Stage& stage, Stack& stack) {
  Numbers ahead = stack.numbers_of(StepProbe::ahead(stack.prefetcher()));
  std::sort(ahead.begin(), ahead.end());
  stage.note("ahead", ahead);
  stage.note("states", stack.states());
  stage.memory("memory");
}

}  // namespace

// 6.1  What every report of `reports` says, and where it leaves the cursor.
void walk(Stage& stage) {
  Stack stack(stage);
  StepProbe::Guess guess = guess_of(stage, stack);
  Json steps = Json::array();
  for (const int number : stage.option("reports", Numbers{})) {
    const bool expected = StepProbe::advance(guess, stack.unit(number));
    steps.push_back({{"expected", expected}, {"cursor", guess.cursor}});
  }
  stage.note("steps", std::move(steps));
  stage.note("order", stack.numbers_of(guess.order));
}

// 6.1
void stale(Stage& stage) {
  Stack stack(stage);
  const StepProbe::Guess guess = guess_of(stage, stack);
  stage.memory("sharded");
  prepare(stage, stack);
  stage.collectives("started", [&] { StepProbe::give_up_stale(stack.prefetcher(), guess); });
  note_units(stage, stack);
}

// 6.2
void start(Stage& stage) {
  Stack stack(stage);
  const StepProbe::Guess guess = guess_of(stage, stack);
  const bool backward = stage.option("phase", std::string("forward")) == "backward";
  stage.memory("sharded");
  prepare(stage, stack);
  stage.events("events",
               [&] {
                 StepProbe::start_ahead(stack.prefetcher(), guess,
                                        backward ? Phase::backward : Phase::forward);
               },
               {EventKind::issue, EventKind::wait});
  note_units(stage, stack);
}

// 6.3  In the middle of something: a recording, a record, a guess that has been walked.
void border(Stage& stage) {
  Stack stack(stage);
  Prefetcher& prefetcher = stack.prefetcher();
  prepare(stage, stack);
  StepProbe::recording(prefetcher) = stack.of(stage.option("recording", Numbers{}));
  StepProbe::recorded(prefetcher) = stack.of(stage.option("recorded", Numbers{}));
  StepProbe::forward(prefetcher) = guess_of(stage, stack);
  StepProbe::backward_begun(prefetcher) = true;
  const bool begins = stage.option("border", std::string()) == "begins";
  stage.collectives("started", [&] {
    std::optional<NoGradScope> without_tape;
    if (!stage.option("tape", true)) without_tape.emplace();
    begins ? prefetcher.forward_begins() : prefetcher.forward_ends();
  });
  note_units(stage, stack);
  stage.note("recording", stack.numbers_of(StepProbe::recording(prefetcher)));
  stage.note("recorded", stack.numbers_of(prefetcher.recorded_order()));
  stage.note("guess", stack.numbers_of(StepProbe::forward(prefetcher).order));
  stage.note("cursor", StepProbe::forward(prefetcher).cursor);
  stage.note("backward begun", StepProbe::backward_begun(prefetcher));
}

}  // namespace fsdp::graded
