// Task 3: what a runner can be asked to do with a sharded tower of layers.
//
// Options of every scenario: width, layers, spare (each layer has an unused parameter), frozen
// (list of path prefixes: such parameters make a second flat parameter), group (0 always, 1 never,
// s within s ranks), keep (layers that keep their parameters until backward).
#include "grader/stage.h"
#include "support/toy_model.h"
#include "task3_forward/forward.h"
#include "tensor/ops.h"

#include <algorithm>
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
  explicit Tower(Stage& stage)
      : model_({.width = stage.option("width", 5),
                .layers = stage.option("layers", 1),
                .unused = stage.option("spare", false),
                .frozen = stage.option("frozen", std::vector<std::string>{})}) {
    const int group = stage.option("group", 0);
    std::shared_ptr<ProcessGroup> subgroup;
    if (group > 1) subgroup = stage.group().split_contiguous(group);
    const auto kept = stage.option("keep", std::vector<int>{});
    for (const auto& layer : model_.layers()) {
      const auto index = static_cast<int>(units_.size());
      const ShardedUnit::Options options{
          .reshard_after_forward = {group},
          .keep_until_backward = std::find(kept.begin(), kept.end(), index) != kept.end()};
      units_.push_back(std::make_unique<ShardedUnit>(layer->path(), *layer, flats_of(*layer, stage),
                                                     stage.shared_group(), subgroup, options));
    }
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

 private:
  // Trainable and frozen parameters go into flat parameters of their own.
  static std::vector<std::unique_ptr<FlatParameter>> flats_of(nn::Module& layer, Stage& stage) {
    std::vector<std::unique_ptr<FlatParameter>> flats;
    for (const bool trainable : {true, false}) {
      std::vector<nn::NamedParameter> some;
      for (const nn::NamedParameter& each : layer.named_parameters()) {
        if (each.variable.requires_grad() == trainable) some.push_back(each);
      }
      if (some.empty()) continue;
      flats.push_back(std::make_unique<FlatParameter>(layer.path(), some, stage.rank(),
                                                      stage.world_size(), kCpu, copy_slice));
    }
    return flats;
  }

  Toy model_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
};

void note_values(Stage& stage, const std::string& key, const std::vector<Tensor>& vectors) {
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    stage.values(key + "." + std::to_string(i), vectors[i]);
  }
}

const std::vector<EventKind> kTransfers = {EventKind::issue, EventKind::wait};

// ------------------------------------------------------------------------------------------- 3.1

void start(Stage& stage) {
  Tower tower(stage);
  const std::vector<Tensor> full = tower.full();
  stage.memory("before");
  stage.events(
      "events",
      [&] {
        stage.collectives("collectives", [&] { tower.unit().start_unshard(Phase::forward); });
      },
      kTransfers);
  stage.memory("started");
  stage.note("state", name_of(tower.unit().state()));
  stage.collectives("again", [&] { tower.unit().start_unshard(Phase::forward); });
  stage.note("state again", name_of(tower.unit().state()));
  tower.units().clear();  // the gathers end with the unit
  note_values(stage, "full", full);
}

void start_peak(Stage& stage) {
  Tower tower(stage);
  stage.note("shard bytes", tower.unit().padded_numel() / stage.world_size() * 4);
  stage.peak("peak", [&] { tower.unit().start_unshard(Phase::forward); });
}

// ------------------------------------------------------------------------------------------- 3.2

void finish(Stage& stage) {
  Tower tower(stage);
  if (stage.option("started", true)) tower.unit().start_unshard(Phase::forward);
  stage.events(
      "events", [&] { tower.unit().finish_unshard(Phase::forward); }, kTransfers);
  stage.note("state", name_of(tower.unit().state()));
  note_values(stage, "full", tower.full());
  stage.events(
      "again", [&] { tower.unit().finish_unshard(Phase::backward); }, kTransfers);
  stage.memory("finished");
}

// ------------------------------------------------------------------------------------------- 3.3

void reshard(Stage& stage) {
  Tower tower(stage);
  ShardedUnit& unit = tower.unit();
  const Variable weight = tower.model().layers().front()->weight();
  stage.memory("sharded");
  const std::string when = stage.option("when", std::string("unsharded"));
  std::vector<Storage*> before;
  for (const Tensor& each : tower.full()) before.push_back(each.storage().get());
  unit.start_unshard(Phase::forward);
  if (when == "unsharded") unit.finish_unshard(Phase::forward);
  stage.events("events", [&] { unit.reshard(); });
  stage.note("state", name_of(unit.state()));
  stage.memory("resharded");
  bool same = true;
  for (std::size_t i = 0; i < before.size(); ++i) {
    same = same && tower.full()[i].storage().get() == before[i];
  }
  stage.note("same storage", same);
  stage.attempt("read", [&] { (void)weight.data().to_vector<float>(); });
  stage.events("again", [&] { unit.reshard(); });
  unit.finish_unshard(Phase::forward);
  note_values(stage, "full", tower.full());
  stage.values("weight", weight.data());
}

// ------------------------------------------------------------------------------------------- 3.4

void subgroup(Stage& stage) {
  Tower tower(stage);
  ShardedUnit& unit = tower.unit();
  unit.finish_unshard(Phase::forward);
  stage.peak("keeping", [&] { unit.reshard_to_subgroup(); });
  stage.note("state", name_of(unit.state()));
  stage.memory("kept");
  stage.collectives("again", [&] { unit.reshard_to_subgroup(); });
  stage.memory("kept again");
  stage.collectives("collectives", [&] { unit.finish_unshard(Phase::backward); });
  note_values(stage, "full", tower.full());
  stage.memory("gathered");
  unit.reshard();
  // Kept parts must not outlive the values they are copies of.
  unit.finish_unshard(Phase::forward);
  unit.reshard_to_subgroup();
  unit.reshard();
  stage.memory("dropped");
  for (const auto& flat : unit.flat_parameters()) ops::scale(flat->shard(), 2);
  stage.collectives("after an update", [&] { unit.finish_unshard(Phase::forward); });
  note_values(stage, "updated", tower.full());
}

// ------------------------------------------------------------------------------------------- 3.5

/// Hears of units, and of the state they are in.
class Listener : public UnshardScheduler {
 public:
  void before_forward(ShardedUnit& unit) override {
    heard.push_back(unit.name() + " " + name_of(unit.state()));
  }
  void before_backward(ShardedUnit&) override {}
  std::vector<std::string> heard;
};

void hooks(Stage& stage) {
  Tower tower(stage);
  Listener listener;
  for (const auto& unit : tower.units()) {
    unit->install_forward_hooks();
    if (stage.option("scheduler", true)) unit->scheduler = &listener;
  }
  const std::int64_t width = stage.option("width", 5);
  const Variable x(testing::noise({3, width}, stage.seed()));
  const auto pass = [&](const std::string& name) {
    listener.heard.clear();
    stage.events(name,
                 [&] {
                   const Variable y = tower.model()(x);
                   std::vector<std::string> states;
                   for (const auto& unit : tower.units()) states.push_back(name_of(unit->state()));
                   stage.note(name + " states", states);
                   stage.memory(name + " memory");
                   stage.values(name + " output", y.data());
                 },
                 {EventKind::issue, EventKind::wait, EventKind::forward_begin,
                  EventKind::forward_end, EventKind::free});
    stage.note(name + " heard", listener.heard);
  };
  pass("with a tape");
  for (const auto& unit : tower.units()) unit->reshard();
  const NoGradScope no_grad;
  pass("without");
}

}  // namespace

Scenarios scenarios() {
  return {{"start", start},     {"start_peak", start_peak}, {"finish", finish},
          {"reshard", reshard}, {"subgroup", subgroup},     {"hooks", hooks}};
}

}  // namespace fsdp::graded
