// Task 7: the units, what is attached to them, and what is not sharded.
#include "task7/session.h"

namespace fsdp::graded {
namespace {

Names names_of(const std::vector<ShardedUnit*>& units) {
  Names names;
  for (const ShardedUnit* unit : units) names.push_back(unit->name());
  return names;
}

}  // namespace

// 7.1
void units(Stage& stage) {
  Session session(stage.asked().options, stage.shared_group());
  session.begin_sharding();
  stage.peak("making", [&] { StepProbe::make_units(session.model()); });
  stage.memory("made");
  stage.note("units", session.units_json());
  Names replicated;
  for (const nn::NamedParameter& each : StepProbe::replicated(session.model())) {
    replicated.push_back(each.path);
  }
  stage.note("replicated", replicated);
  stage.note("slices", session.shard_slices());
  // Under within(s): whoever keeps a part gathers it again in a subgroup.
  Json gathered = Json::array();
  if (stage.option("group", 0) > 1) {
    for (const auto& unit : session.model().units()) {
      unit->finish_unshard(Phase::forward);
      unit->reshard_to_subgroup();
      unit->finish_unshard(Phase::backward);
      for (const auto& flat : unit->flat_parameters()) {
        gathered.push_back({{"unit", unit->name()}, {"bits", bits_of(flat->full())}});
      }
      unit->reshard();
    }
  }
  stage.note("gathered", std::move(gathered));
}

// 7.2
void hooks(Stage& stage) {
  Session session(stage.asked().options, stage.shared_group());
  session.begin_sharding();
  ShardedModel& model = session.model();
  StepProbe::make_units(model);
  StepProbe::install_hooks(model);
  const Prefetcher* prefetcher = model.prefetcher();
  stage.note("prefetcher", prefetcher != nullptr);
  if (prefetcher != nullptr) {
    stage.note("depth", prefetcher->options().depth);
    stage.note("limit", prefetcher->options().in_flight_limit);
  }
  Names without;
  for (const auto& unit : model.units()) {
    if (unit->scheduler != model.prefetcher()) without.push_back(unit->name());
  }
  stage.note("without the prefetcher", without);
  stage.note("reducer", StepProbe::reducer(model) != nullptr);
  for (int i = 0; i < 2; ++i) {
    const std::string name = std::to_string(i);
    const std::vector<EventKind> kinds = {EventKind::issue, EventKind::wait,
                                          EventKind::forward_begin, EventKind::backward_begin};
    Variable loss;
    stage.events(
        "forward " + name,
        [&] { loss = loss_of(session.root(), session.options(), stage.seed(), i, stage.rank()); },
        kinds);
    stage.values("loss " + name, loss.data());
    if (prefetcher != nullptr) {
      stage.note("record " + name, names_of(prefetcher->recorded_order()));
    }
    stage.events(
        "backward " + name, [&] { loss.backward(); }, kinds);
  }
  int not_sharded = 0;
  for (const auto& unit : model.units()) {
    not_sharded += unit->state() != ShardedUnit::State::sharded;
  }
  stage.note("not sharded", not_sharded);
}

// 7.3
void replicated(Stage& stage) {
  Context::current().pool();
  stage.memory("before");
  std::unique_ptr<Session> session;
  const auto make = [&] {
    session = std::make_unique<Session>(stage.asked().options, stage.shared_group());
    session->begin_sharding();
    StepProbe::make_units(session->model());
    StepProbe::make_replicated(session->model());
  };
  stage.peak("start", make);
  stage.memory("started");
  stage.note("generator", Context::current().generator().offset());
  stage.note("engine", StepProbe::has_replicated_gradients(session->model()));
  stage.note("replicated", session->replicated_json());
  Json decays = Json::object();
  for (const optim::Piece& piece : StepProbe::replicated_pieces(session->model())) {
    decays[piece.key] = piece.decay;
  }
  stage.note("decays", std::move(decays));
  Json buffers = Json::array();
  for (nn::Module* module : session->root().modules()) {
    for (const nn::Buffer& buffer : module->own_buffers()) {
      Json noted = {{"name", buffer.name}, {"initialised", buffer.is_initialised}};
      if (buffer.is_initialised) noted["bits"] = bits_of(buffer.tensor);
      buffers.push_back(std::move(noted));
    }
  }
  stage.note("buffers", std::move(buffers));
}

}  // namespace fsdp::graded
