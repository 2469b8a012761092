// Task 6: one step at a time, on units put into the state the case says.
//
// Options: guess (numbers of units), cursor; ahead (units started ahead), there (units that are
// whole), coming (units on their way that nobody counts as ahead); and those of the stack.
#include "task6/probe.h"
#include "task6/stack.h"

#include <optional>

namespace fsdp::graded {
namespace {

StepProbe::Guess guess_of(Recorder& recorder, Stack& stack) {
  return StepProbe::guess(stack.of(recorder.option("guess", Numbers{})),
                          recorder.option("cursor", std::size_t{0}));
}

void prepare(Recorder& recorder, Stack& stack) {
  const Numbers ahead = recorder.option("ahead", Numbers{});
  for (const int number : ahead) stack.unit(number).start_unshard(Phase::forward);
  for (const int number : recorder.option("coming", Numbers{})) {
    stack.unit(number).start_unshard(Phase::forward);
  }
  for (const int number : recorder.option("there", Numbers{})) {
    stack.unit(number).finish_unshard(Phase::forward);
  }
  StepProbe::ahead(stack.prefetcher()) = stack.of(ahead);
}

void note_units(Recorder& recorder, Stack& stack) {
  Numbers ahead = stack.numbers_of(StepProbe::ahead(stack.prefetcher()));
  std::sort(ahead.begin(), ahead.end());
  recorder.note("ahead", ahead);
  recorder.note("states", stack.states());
  recorder.memory("memory");
}

}  // namespace

// 6.1  What every report of `reports` says, and where it leaves the cursor.
void walk(Recorder& recorder) {
  Stack stack(recorder);
  StepProbe::Guess guess = guess_of(recorder, stack);
  Json steps = Json::array();
  for (const int number : recorder.option("reports", Numbers{})) {
    const bool expected = StepProbe::advance(guess, stack.unit(number));
    steps.push_back({{"expected", expected}, {"cursor", guess.cursor}});
  }
  recorder.note("steps", std::move(steps));
  recorder.note("order", stack.numbers_of(guess.order));
}

// 6.1
void stale(Recorder& recorder) {
  Stack stack(recorder);
  const StepProbe::Guess guess = guess_of(recorder, stack);
  recorder.memory("sharded");
  prepare(recorder, stack);
  recorder.collectives("started", [&] { StepProbe::reshard_stale(stack.prefetcher(), guess); });
  note_units(recorder, stack);
}

// 6.2
void start(Recorder& recorder) {
  Stack stack(recorder);
  const StepProbe::Guess guess = guess_of(recorder, stack);
  const bool backward = recorder.option("phase", std::string("forward")) == "backward";
  recorder.memory("sharded");
  prepare(recorder, stack);
  recorder.events("events",
                  [&] {
                    StepProbe::start_ahead(stack.prefetcher(), guess,
                                           backward ? Phase::backward : Phase::forward);
                  },
                  {EventKind::issue, EventKind::wait});
  note_units(recorder, stack);
}

// 6.3  In the middle of something: a recording, a record, a guess that has been walked.
void border(Recorder& recorder) {
  Stack stack(recorder);
  Prefetcher& prefetcher = stack.prefetcher();
  prepare(recorder, stack);
  StepProbe::recording(prefetcher) = stack.of(recorder.option("recording", Numbers{}));
  StepProbe::recorded(prefetcher) = stack.of(recorder.option("recorded", Numbers{}));
  StepProbe::forward(prefetcher) = guess_of(recorder, stack);
  StepProbe::backward_begun(prefetcher) = true;
  const bool begins = recorder.option("border", std::string()) == "begins";
  recorder.collectives("started", [&] {
    std::optional<NoGradScope> without_tape;
    if (!recorder.option("tape", true)) without_tape.emplace();
    begins ? prefetcher.forward_begins() : prefetcher.forward_ends();
  });
  note_units(recorder, stack);
  recorder.note("recording", stack.numbers_of(StepProbe::recording(prefetcher)));
  recorder.note("recorded", stack.numbers_of(prefetcher.recorded_order()));
  recorder.note("guess", stack.numbers_of(StepProbe::forward(prefetcher).order));
  recorder.note("cursor", StepProbe::forward(prefetcher).cursor);
  recorder.note("backward begun", StepProbe::backward_begun(prefetcher));
}

}  // namespace fsdp::graded
