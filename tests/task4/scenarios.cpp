// Task 4: what a runner can be asked to do with single steps. Options: sharded_toy.h; these
// scenarios look at the first unit only.
#include "task4/scenarios.h"

#include "task4/probe.h"
#include "task4/sharded_toy.h"
#include "tensor/ops.h"

namespace fsdp::graded {
namespace {

std::string key_of(const std::string& name, std::size_t index) {
  return name + "." + std::to_string(index);
}

// ------------------------------------------------------------------------------------------- 4.1

/// Writes down in what state a unit is when the scheduler is notified.
class Listener : public UnshardScheduler {
 public:
  void before_forward(ShardedUnit&) override {}
  void before_backward(ShardedUnit& unit) override {
    const bool has_parameters = unit.state() == ShardedUnit::State::unsharded;
    bool has_room = false;
    for (const FlatParameter* flat : trainable_flats(unit)) {
      has_room = has_room || flat->full_grad().storage()->is_allocated();
    }
    heard.push_back(unit.name() + (has_parameters ? ", parameters" : ", no parameters") +
                    (has_room ? ", room for gradients" : ", no room for gradients"));
  }
  std::vector<std::string> heard;
};

void contribute_to_all(const Recorder& recorder, const FlatParameter& flat) {
  for (std::size_t p = 0; p < flat.parameters().size(); ++p) contribute(recorder, flat, p);
}

void pre_backward(Recorder& recorder) {
  ShardedToy toy(recorder);
  ShardedUnit& unit = toy.unit();
  const std::vector<FlatParameter*> flats = trainable_flats(unit);
  Listener listener;
  if (recorder.option("scheduler", true)) unit.scheduler = &listener;
  // An earlier backward wrote to the gradients.
  unit.finish_unshard(Phase::forward);
  for (FlatParameter* flat : flats) {
    flat->full_grad().storage()->allocate();
    contribute_to_all(recorder, *flat);
    flat->full_grad().storage()->free();
  }
  if (!recorder.option("kept", false)) unit.reshard();

  for (int m = 0; m < recorder.option("micro_step", 0); ++m) {
    StepProbe::count_micro_step(toy.reducer());
  }
  const auto prepare = [&] { unit.backward->pre_backward(); };
  recorder.memory("before");
  inside_backward([&] {
    recorder.events("events", prepare, {EventKind::issue, EventKind::wait, EventKind::alloc});
  });
  recorder.memory("prepared");
  recorder.note("state", states_of(toy).front());
  recorder.note("heard", listener.heard);
  listener.heard.clear();
  const auto write = [&] {
    for (FlatParameter* flat : flats) contribute_to_all(recorder, *flat);
  };
  const auto note_gradients = [&](const std::string& name) {
    for (std::size_t i = 0; i < flats.size(); ++i) {
      for (std::size_t p = 0; p < flats[i]->parameters().size(); ++p) {
        recorder.values(key_of(key_of(name, i), p),
                        flats[i]->parameters()[p].variable.grad_buffer());
      }
    }
  };
  recorder.attempt("writing", [&] {
    write();
    note_gradients("first");
    // The module was called twice: its second frame opens in the same backward.
    inside_backward([&] { recorder.collectives("again", prepare); });
    note_gradients("again");
    write();
    note_gradients("second");
  });
  recorder.note("heard again", listener.heard);
  // Its parameters were given up in between, as a scheduler may do.
  unit.reshard();
  inside_backward([&] { recorder.collectives("given up", prepare); });
  recorder.note("state then", states_of(toy).front());
}

// ------------------------------------------------------------------------------------------- 4.2

void complete(Recorder& recorder) {
  ShardedToy toy(recorder);
  ShardedUnit& unit = toy.unit();
  unit.finish_unshard(Phase::backward);
  const auto written = recorder.option("written", std::vector<int>{0});
  std::vector<FlatParameter*> flats = trainable_flats(unit);
  for (FlatParameter* flat : flats) {
    flat->full_grad().storage()->allocate();
    if (recorder.option("poison", false)) ops::fill(flat->full_grad(), 7);
    for (const nn::NamedParameter& each : flat->parameters())
      Variable(each.variable).reset_grad_buffer();
    for (const int index : written) contribute(recorder, *flat, static_cast<std::size_t>(index));
  }
  recorder.memory("before");
  recorder.peak("peak", [&] { StepProbe::complete_gradients(toy.reducer(), unit); });
  recorder.memory("after");
  for (std::size_t i = 0; i < flats.size(); ++i) {
    recorder.values(key_of("full gradient", i), flats[i]->full_grad());
  }
}

// ------------------------------------------------------------------------------------------- 4.3

void fill_unit(Recorder& recorder, const ShardedUnit& unit, int m) {
  for (const FlatParameter* flat : trainable_flats(unit)) fill_full_grad(recorder, *flat, m);
}

const std::vector<EventKind> kTransfers = {EventKind::issue, EventKind::wait};
const std::vector<EventKind> kStarts = {EventKind::issue, EventKind::wait, EventKind::alloc};

/// M micro-steps; each reduction is dropped when it has been looked at.
void start_reduce(Recorder& recorder) {
  ShardedToy toy(recorder);
  ShardedUnit& unit = toy.unit();
  for (int m = 0; m < toy.plan().micro_steps; ++m) {
    const std::string name = std::to_string(m);
    const auto start = [&] { StepProbe::start_reduce(toy.reducer(), unit); };
    fill_unit(recorder, unit, m);
    recorder.memory("before " + name);
    recorder.events(
        "events " + name,
        [&] {
          recorder.collectives("collectives " + name,
                               [&] { recorder.attempt("reduction " + name, start); });
        },
        kStarts);
    if (recorder.seen().at("reduction " + name).at("type") != "none") return;
    recorder.memory("after " + name);
    recorder.note("reducing " + name, StepProbe::reducing(toy.reducer()));
    StepProbe::wait(toy.reducer());
    for (std::size_t i = 0; i < trainable_flats(unit).size(); ++i) {
      const Tensor leaf = StepProbe::leaf(toy.reducer(), unit, i);
      if (leaf.is_defined()) recorder.values(key_of("leaf " + name, i), leaf);
    }
    StepProbe::drop(toy.reducer());
    StepProbe::count_micro_step(toy.reducer());
  }
}

void start_reduce_peak(Recorder& recorder) {
  ShardedToy toy(recorder);
  ShardedUnit& unit = toy.unit();
  for (int m = 0; m < toy.plan().micro_steps; ++m) {
    fill_unit(recorder, unit, m);
    recorder.peak("peak " + std::to_string(m),
                  [&] { StepProbe::start_reduce(toy.reducer(), unit); });
    StepProbe::drop(toy.reducer());
    StepProbe::count_micro_step(toy.reducer());
  }
}

// ------------------------------------------------------------------------------------------- 4.4

void finish_reduce(Recorder& recorder) {
  ShardedToy toy(recorder);
  ShardedUnit& unit = toy.unit();
  const auto finish = [&] { StepProbe::finish_reduce(toy.reducer()); };
  recorder.events("nothing in flight", finish);
  for (int m = 0; m < toy.plan().micro_steps; ++m) {
    const std::string name = std::to_string(m);
    fill_unit(recorder, unit, m);
    recorder.events("started " + name, [&] { StepProbe::start_reduce(toy.reducer(), unit); },
                    {EventKind::issue});
    recorder.events("events " + name, finish, kTransfers);
    recorder.memory("after " + name);
    recorder.note("reducing " + name, StepProbe::reducing(toy.reducer()));
    recorder.note("full gradients " + name, StepProbe::full_gradients(toy.reducer(), unit));
    recorder.note("inputs " + name, StepProbe::inputs(toy.reducer(), unit));
    recorder.note("works " + name, StepProbe::works(toy.reducer()));
    std::vector<std::int64_t> leaves;
    for (std::size_t i = 0; i < trainable_flats(unit).size(); ++i) {
      leaves.push_back(StepProbe::leaves(toy.reducer(), unit, i));
    }
    recorder.note("leaves " + name, leaves);
    recorder.events("again " + name, finish);
    StepProbe::count_micro_step(toy.reducer());
  }
  for (std::size_t i = 0; i < trainable_flats(unit).size(); ++i) {
    if (StepProbe::leaves(toy.reducer(), unit, i) == 0) continue;
    recorder.values(key_of("sum", i), StepProbe::take_sum(toy.reducer(), unit, i));
  }
}

/// Under Delivery::fails: another rank fails while the reduction is in flight.
void finish_failed(Recorder& recorder) {
  ShardedToy toy(recorder);
  fill_unit(recorder, toy.unit(), 0);
  StepProbe::start_reduce(toy.reducer(), toy.unit());
  recorder.attempt("finish", [&] { StepProbe::finish_reduce(toy.reducer()); });
}

void finish_reduce_peak(Recorder& recorder) {
  ShardedToy toy(recorder);
  ShardedUnit& unit = toy.unit();
  for (int m = 0; m < toy.plan().micro_steps; ++m) {
    fill_unit(recorder, unit, m);
    StepProbe::start_reduce(toy.reducer(), unit);
    recorder.peak("peak " + std::to_string(m), [&] { StepProbe::finish_reduce(toy.reducer()); });
    StepProbe::count_micro_step(toy.reducer());
  }
}

}  // namespace

Scenarios scenarios() {
  Scenarios all = {{"pre_backward", pre_backward},   {"complete", complete},
                   {"start_reduce", start_reduce},   {"start_reduce_peak", start_reduce_peak},
                   {"finish_reduce", finish_reduce}, {"finish_reduce_peak", finish_reduce_peak},
                   {"finish_failed", finish_failed}};
  all.merge(backward_scenarios());
  return all;
}

}  // namespace fsdp::graded
