// Task 3: what a runner can be asked to do with a sharded tower of layers.
//
// Options of every scenario: those of the model (models.h; frozen parameters make a second flat
// parameter), group (0 always, 1 never, s within s ranks), keep (layers that keep their parameters
// until backward), param (what the model reads is cast to this dtype).
#include "graded/device.h"
#include "graded/precision.h"
#include "graded/recorder.h"
#include "support/numbers.h"
#include "support/reshard.h"
#include "task3/models.h"
#include "task3_forward/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

namespace fsdp::graded {
namespace {

using testing::Toy;

std::string name_of(ShardedUnit::State state) {
  if (state == ShardedUnit::State::sharded) return "sharded";
  return state == ShardedUnit::State::unsharding ? "unsharding" : "unsharded";
}

/// A model whose layers are units, put together by hand.
class Tower {
 public:
  explicit Tower(Recorder& recorder) : model_(config_of(recorder.asked())) {
    take_scratch();  // its scratch is there from now on
    widen(model_, recorder.asked());
    const int group = recorder.option("group", 0);
    std::shared_ptr<ProcessGroup> subgroup;
    if (group > 1) subgroup = recorder.group().split_contiguous(group);
    const auto kept = recorder.option("keep", std::vector<int>{});
    for (const auto& layer : model_.layers()) {
      const auto index = static_cast<int>(units_.size());
      const ShardedUnit::Options options{
          .reshard_after_forward = testing::reshard_of(group),
          .keep_until_backward = std::find(kept.begin(), kept.end(), index) != kept.end()};
      const std::string name = name_of_unit(units_.size());
      options_.push_back(options);
      const bool is_later = recorder.option("set_options", false);
      units_.push_back(std::make_unique<ShardedUnit>(name, *layer, flats_of(name, *layer, recorder),
                                                     recorder.shared_group(), subgroup,
                                                     is_later ? ShardedUnit::Options{} : options));
    }
  }
  /// With "set_options", the options of a case are decided only now.
  void set_options() {
    for (std::size_t i = 0; i < units_.size(); ++i) unit(i).set_options(options_[i]);
  }
  Toy& model() { return model_; }
  ShardedUnit& unit(std::size_t index = 0) { return *units_.at(index); }
  std::vector<std::unique_ptr<ShardedUnit>>& units() { return units_; }
  /// The flat vectors of a unit; they outlive it.
  std::vector<Tensor> full(std::size_t index = 0) {
    std::vector<Tensor> all;
    for (const auto& flat : unit(index).flat_parameters()) all.push_back(flat->full());
    return all;
  }

  /// An optimizer step: every parameter is twice as large.
  void update() {
    for (const auto& each : units_) {
      for (const auto& flat : each->flat_parameters()) ops::scale(flat->shard(), 2);
    }
  }

  // Trainable and frozen parameters go into flat parameters of their own.
  static std::vector<std::unique_ptr<FlatParameter>> flats_of(const std::string& unit,
                                                              nn::Module& layer,
                                                              Recorder& recorder) {
    std::vector<std::unique_ptr<FlatParameter>> flats;
    for (const bool trainable : trainable_or_not(recorder.asked())) {
      std::vector<nn::NamedParameter> some;
      for (const nn::NamedParameter& each : layer.named_parameters()) {
        if (each.variable.requires_grad() == trainable) some.push_back(each);
      }
      if (some.empty()) continue;
      flats.push_back(std::make_unique<FlatParameter>(
          unit, some, recorder.rank(), recorder.world_size(), device_of_rank(), copy_slice,
          precision_of(recorder.asked().options)));
    }
    return flats;
  }

 private:
  Toy model_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  std::vector<ShardedUnit::Options> options_;  // as the case has them
};

void note_values(Recorder& recorder, const std::string& key, const std::vector<Tensor>& vectors) {
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const std::string name = key + "." + std::to_string(i);
    // Without bytes it has no elements; judges say so.
    const Tensor vector =
        vectors[i].storage()->is_allocated() ? vectors[i] : Tensor::empty({0}, vectors[i].dtype());
    recorder.values(name, Tensor::from(testing::floats_of(vector), vector.shape()));
    recorder.note(name + " in full", testing::digits_of(vector));
  }
}

const std::vector<EventKind> kTransfers = {EventKind::issue, EventKind::wait};

// ------------------------------------------------------------------------------------------- 3.1

void start(Recorder& recorder) {
  Tower tower(recorder);
  const std::vector<Tensor> full = tower.full();
  Json formats = Json::array();
  for (const auto& flat : tower.unit().flat_parameters()) {
    formats.push_back(format_of(flat->full(), flat->shard().dtype()));
  }
  recorder.note("formats", formats);
  recorder.memory("before");
  const auto start = [&] { tower.unit().start_unshard(Phase::forward); };
  recorder.events("allocations",
                  [&] {
                    recorder.events(
                        "events", [&] { recorder.collectives("collectives", start); }, kTransfers);
                  },
                  {EventKind::alloc});
  recorder.memory("started");
  recorder.note("state", name_of(tower.unit().state()));
  recorder.collectives("again", [&] { tower.unit().start_unshard(Phase::forward); });
  recorder.note("state again", name_of(tower.unit().state()));
  tower.units().clear();  // the gathers end with the unit
  note_values(recorder, "full", full);
}

void start_peak(Recorder& recorder) {
  Tower tower(recorder);
  recorder.peak("peak", [&] { tower.unit().start_unshard(Phase::forward); });
}

// ------------------------------------------------------------------------------------------- 3.2

void finish(Recorder& recorder) {
  Tower tower(recorder);
  if (recorder.option("started", true)) tower.unit().start_unshard(Phase::forward);
  const auto finish = [&] {
    recorder.attempt("finish", [&] { tower.unit().finish_unshard(Phase::forward); });
  };
  recorder.events("events", finish, kTransfers);
  recorder.note("state", name_of(tower.unit().state()));
  note_values(recorder, "full", tower.full());
  recorder.events(
      "again", [&] { tower.unit().finish_unshard(Phase::backward); }, kTransfers);
  recorder.memory("finished");
}

// ------------------------------------------------------------------------------------------- 3.3

void reshard(Recorder& recorder) {
  Tower tower(recorder);
  ShardedUnit& unit = tower.unit();
  const Variable weight = tower.model().layers().front()->weight();
  recorder.memory("sharded");
  const std::string when = recorder.option("when", std::string("unsharded"));
  std::vector<Storage*> before;
  for (const Tensor& each : tower.full()) before.push_back(each.storage().get());
  unit.start_unshard(Phase::forward);
  if (when == "unsharded") unit.finish_unshard(Phase::forward);
  recorder.events("events", [&] { recorder.attempt("reshard", [&] { unit.reshard(); }); });
  if (recorder.seen().at("reshard").at("type") != "none") return;
  recorder.note("state", name_of(unit.state()));
  recorder.memory("resharded");
  bool same = true;
  for (std::size_t i = 0; i < before.size(); ++i) {
    same = same && tower.full()[i].storage().get() == before[i];
  }
  recorder.note("same storage", same);
  recorder.attempt("read", [&] { (void)weight.data().to_vector<float>(); });
  recorder.events("again", [&] { unit.reshard(); });
  unit.finish_unshard(Phase::forward);
  note_values(recorder, "full", tower.full());
  recorder.values("weight",
                  weight.data().storage()->is_allocated() ? weight.data() : Tensor::empty({0}));
}

// ------------------------------------------------------------------------------------------- 3.4

void subgroup(Recorder& recorder) {
  Tower tower(recorder);
  ShardedUnit& unit = tower.unit();
  unit.finish_unshard(Phase::forward);
  recorder.peak("keeping", [&] { unit.reshard_to_subgroup(); });
  recorder.note("state", name_of(unit.state()));
  recorder.memory("kept");
  recorder.attempt("again", [&] { unit.reshard_to_subgroup(); });
  if (recorder.seen().at("again").at("type") != "none") return;
  recorder.memory("kept again");
  recorder.collectives("collectives", [&] { unit.finish_unshard(Phase::backward); });
  note_values(recorder, "full", tower.full());
  recorder.memory("gathered");
  unit.reshard();
  // Kept parts must not outlive the values they are copies of.
  unit.finish_unshard(Phase::forward);
  recorder.events("allocations", [&] { unit.reshard_to_subgroup(); }, {EventKind::alloc});
  unit.reshard();
  recorder.memory("dropped");
  for (const auto& flat : unit.flat_parameters()) ops::scale(flat->shard(), 2);
  recorder.collectives("after an update", [&] { unit.finish_unshard(Phase::forward); });
  note_values(recorder, "updated", tower.full());
}

// ------------------------------------------------------------------------------------------- 3.x

/// One of the calls of option "calls": a letter each.
void make_call(Tower& tower, char call) {
  ShardedUnit& unit = tower.unit();
  switch (call) {
    case 's':
      return unit.start_unshard(Phase::forward);
    case 'S':
      return unit.start_unshard(Phase::backward);
    case 'f':
      return unit.finish_unshard(Phase::forward);
    case 'F':
      return unit.finish_unshard(Phase::backward);
    case 'c':
      return unit.start_unshard(Phase::checkpoint);
    case 'r':
      return unit.reshard();
    case 'k':
      return unit.reshard_to_subgroup();
    default:
      return tower.update();
  }
}

/// The calls of option "calls" on one unit, one after the other; one that throws is the last.
void calls(Recorder& recorder) {
  Tower tower(recorder);
  const auto all = recorder.option("calls", std::string());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string key = std::to_string(i);
    const auto call = [&] { recorder.attempt(key, [&] { make_call(tower, all[i]); }); };
    recorder.events(
        key + " events", [&] { recorder.collectives(key + " started", call); }, kTransfers);
    recorder.note(key + " state", name_of(tower.unit().state()));
    recorder.memory(key + " memory");
    if (recorder.seen().at(key).at("type") != "none") return;
    const std::vector<Tensor> full = tower.full();
    const bool readable = std::all_of(full.begin(), full.end(), [](const Tensor& each) {
      return each.storage()->is_allocated();
    });
    const bool starts = all[i] == 's' || all[i] == 'S' || all[i] == 'c';
    if (readable && !starts) note_values(recorder, key + " full", full);
  }
}

// ------------------------------------------------------------------------------------------- 3.5

/// Hears of units, and of the state they are in.
class Listener : public UnshardScheduler {
 public:
  explicit Listener(const EventLog& log) : log_(log) {}
  void before_forward(ShardedUnit& unit) override {
    const std::string last = log_.lines().size() == begin ? "" : log_.lines().back().text;
    const bool late =
        last == "forward_begin " + unit.name() || last == "forward_end " + unit.name();
    heard.push_back(unit.name() + " " + name_of(unit.state()) + (late ? ", late" : ""));
  }
  void before_backward(ShardedUnit& unit) override {
    heard.push_back(unit.name() + " in backward");
  }
  std::vector<std::string> heard;
  std::size_t begin = 0;  // of the pass, in the log

 private:
  const EventLog& log_;
};

const std::vector<EventKind> kPass = {EventKind::issue, EventKind::wait, EventKind::forward_begin,
                                      EventKind::forward_end, EventKind::free};

/// Options: passes, in words:
///   tape    a forward with a tape that is given up        eval   one without a tape
///   again   as tape, and the first layer is called again  reset  reshard() of all units
///   throws  the first layer throws                        update an optimizer step
///   ahead   start_unshard() of the last unit, for a forward that follows
void hooks(Recorder& recorder) {
  Tower tower(recorder);
  Listener listener(recorder.log());
  for (const auto& unit : tower.units()) {
    unit->install_hooks();
    if (recorder.option("scheduler", true)) unit->scheduler = &listener;
  }
  tower.set_options();
  const Variable x = input_of(recorder.asked()), misfit = input_of(recorder.asked(), 1);
  const std::vector<int> order = tower.model().order;
  recorder.memory("floor");
  const auto pass = [&](const std::string& name) {
    const Variable y = tower.model()(x);
    std::vector<std::string> states;
    for (const auto& unit : tower.units()) states.push_back(name_of(unit->state()));
    recorder.note(name + " states", states);
    recorder.memory(name + " memory");
    note_values(recorder, name + " output", {y.data()});
  };
  const auto passes =
      recorder.option("passes", std::vector<std::string>{"tape", "reset", "eval", "reset"});
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const std::string name = fmt::format("{} {}", i, passes[i]);
    listener.heard.clear();
    listener.begin = recorder.log().lines().size();
    if (passes[i] == "reset") {
      for (const auto& unit : tower.units()) unit->reshard();
      recorder.memory(name + " memory");
    } else if (passes[i] == "update") {
      tower.update();
    } else if (passes[i] == "ahead") {
      tower.units().back()->start_unshard(Phase::forward);
    } else if (passes[i] == "throws") {
      recorder.attempt(name, [&] { tower.model()(misfit); });
    } else {
      tower.model().order = order;
      if (passes[i] == "again") tower.model().order.push_back(order.front());
      std::optional<NoGradScope> no_grad;
      if (passes[i] == "eval") no_grad.emplace();
      recorder.events(
          name, [&] { recorder.collectives(name + " gathers", [&] { pass(name); }); }, kPass);
      recorder.note(name + " heard", listener.heard);
    }
  }
}

/// A unit is destroyed before its module, and a unit of another module takes its place in memory: a
/// hook that was left behind is seen by what it does to that one.
void destroyed(Recorder& recorder) {
  Toy model(config_of(recorder.asked())), other(config_of(recorder.asked()));
  nn::Module& layer = *model.layers().front();
  void* place = ::operator new(sizeof(ShardedUnit));
  const auto make = [&](nn::Module& module) {
    const std::string name = name_of_unit(0);
    return new (place) ShardedUnit(name, module, Tower::flats_of(name, module, recorder),
                                   recorder.shared_group(), nullptr, {});
  };
  ShardedUnit* unit = make(layer);
  unit->install_hooks();
  const Variable x = input_of(recorder.asked());
  recorder.attempt("with its unit", [&] { layer(x); });
  unit->~ShardedUnit();
  unit = make(*other.layers().front());
  recorder.attempt("without", [&] { layer(x); });
  recorder.note("state of the next", name_of(unit->state()));
  // With its bytes the module computes, and comes to its post-forward hooks.
  for (const auto& [name, parameter] : layer.own_parameters()) {
    Storage& storage = *parameter.data().storage();
    if (!storage.is_allocated()) storage.allocate();
  }
  unit->finish_unshard(Phase::forward);
  recorder.attempt("with bytes", [&] { layer(x); });
  recorder.note("state of the next, unsharded", name_of(unit->state()));
  unit->~ShardedUnit();
  ::operator delete(place);
}

}  // namespace

Scenarios scenarios() {
  return {{"start", start},     {"start_peak", start_peak}, {"finish", finish},
          {"reshard", reshard}, {"subgroup", subgroup},     {"calls", calls},
          {"hooks", hooks},     {"destroyed", destroyed}};
}

}  // namespace fsdp::graded
