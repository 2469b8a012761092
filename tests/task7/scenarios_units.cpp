// Task 7: the units, what is attached to them, and what is not sharded.
#include "comm/world.h"
#include "graded/decorated.h"
#include "graded/device.h"
#include "task7/session.h"
#include "tensor/ops.h"

#include <array>
#include <cstddef>
#include <new>
#include <utility>

namespace fsdp::graded {
namespace {

/// A whole backward. Step 7.4, which ends one in training, may not be written yet.
void backward(ShardedModel& model, const Variable& loss) {
  loss.backward();
  if (GradientReducer* reducer = StepProbe::reducer(model)) reducer->end_of_backward();
}

class CountsSplits : public Decorated {
 public:
  CountsSplits(std::shared_ptr<Backend> inner, int& count)
      : Decorated(std::move(inner)), count_(count) {}
  std::unique_ptr<Work::Pending> start(const Collective& call) override {
    return inner().start(call);
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override {
    ++count_;
    return std::make_shared<CountsSplits>(std::move(part), count_);
  }
  int& count_;
};

Names names_of(const std::vector<ShardedUnit*>& units) {
  Names names;
  for (const ShardedUnit* unit : units) names.push_back(unit->name());
  return names;
}

}  // namespace

// 7.1
void units(Recorder& recorder) {
  Session session(recorder.asked().options, recorder.shared_group());
  session.begin_sharding();
  recorder.peak("making", [&] { StepProbe::make_units(session.model()); });
  recorder.memory("made");
  recorder.note("units", session.units_json());
  Names replicated;
  for (const nn::NamedParameter& each : StepProbe::replicated(session.model())) {
    replicated.push_back(each.path);
  }
  recorder.note("replicated", replicated);
  recorder.note("slices", session.shard_slices());
  // Under within(s): whoever keeps a part gathers it again in a subgroup.
  Json gathered = Json::array();
  if (recorder.option("group", 0) > 1) {
    for (const auto& unit : session.model().units()) {
      using Kind = ReshardAfterForward::Kind;
      if (unit->options().reshard_after_forward.kind != Kind::within) continue;
      unit->finish_unshard(Phase::forward);
      unit->reshard_to_subgroup();
      unit->finish_unshard(Phase::backward);
      for (const auto& flat : unit->flat_parameters()) {
        gathered.push_back({{"unit", unit->name()}, {"bits", bits_of(flat->full())}});
      }
      unit->reshard();
    }
  }
  recorder.note("gathered", std::move(gathered));
}

// 7.1  How often each rank splits the group.
void splits(Recorder& recorder) {
  const Json& options = recorder.asked().options;
  std::vector<int> counts(static_cast<std::size_t>(recorder.option("ranks", 4)));
  RankOptions ranks = ranks_on(device_of_rank(), static_cast<int>(counts.size()), recorder.seed());
  ranks.decorate = [&](std::shared_ptr<Backend> backend) {
    int& count = counts.at(static_cast<std::size_t>(backend->rank()));
    return std::make_shared<CountsSplits>(std::move(backend), count);
  };
  run_ranks(ranks, [&](ProcessGroup& group) {
    Session session(options, borrowed(group));
    session.begin_sharding();
    StepProbe::make_units(session.model());
  });
  recorder.note("splits", counts);
}

// 7.2
void hooks(Recorder& recorder) {
  Session session(recorder.asked().options, recorder.shared_group());
  session.begin_sharding();
  ShardedModel& model = session.model();
  StepProbe::make_units(model);
  StepProbe::install_hooks(model);
  const Prefetcher* prefetcher = model.prefetcher();
  recorder.note("prefetcher", prefetcher != nullptr);
  if (prefetcher != nullptr) {
    recorder.note("depth", prefetcher->options().depth);
    recorder.note("limit", prefetcher->options().in_flight_limit);
  }
  Names without;
  for (const auto& unit : model.units()) {
    if (unit->scheduler != model.prefetcher()) without.push_back(unit->name());
  }
  recorder.note("without the prefetcher", without);
  recorder.note("reducer", StepProbe::reducer(model) != nullptr);
  for (int i = 0; i < 2; ++i) {
    const std::string name = std::to_string(i);
    const std::vector<EventKind> kinds = {EventKind::issue, EventKind::wait,
                                          EventKind::forward_begin, EventKind::backward_begin};
    Variable loss;
    recorder.events(
        "forward " + name,
        [&] {
          loss = loss_of(session.root(), session.options(), recorder.seed(), i, recorder.rank());
        },
        kinds);
    recorder.values("loss " + name, loss.data());
    if (prefetcher != nullptr) {
      recorder.note("record " + name, names_of(prefetcher->recorded_order()));
    }
    recorder.events(
        "backward " + name, [&] { backward(model, loss); }, kinds);
  }
  int not_sharded = 0;
  for (const auto& unit : model.units()) {
    not_sharded += unit->state() != ShardedUnit::State::sharded;
  }
  recorder.note("not sharded", not_sharded);
}

// After an iteration that calls every layer: a forward that calls the first one alone, without a
// tape, and an iteration that does.
void left_out(Recorder& recorder) {
  Session session(recorder.asked().options, recorder.shared_group());
  session.begin_sharding();
  StepProbe::make_units(session.model());
  StepProbe::install_hooks(session.model());
  const auto loss = [&] {
    return loss_of(session.root(), session.options(), recorder.seed(), 0, recorder.rank());
  };
  backward(session.model(), loss());
  dynamic_cast<testing::Toy&>(session.root()).order = {0};
  recorder.events("freed",
                  [&] {
                    const NoGradScope no_tape;
                    loss();
                  },
                  {EventKind::free});
  const Variable last = loss();
  recorder.events("sent", [&] { backward(session.model(), last); }, {EventKind::issue});
}

// A second model is made in the very memory of the first: what outlives the first acts on it. The
// first module is called between two iterations of the second, and in the middle of a forward:
// there both the beginning and the end of a forward change what is recorded.
void gone(Recorder& recorder) {
  const Json& options = recorder.asked().options;
  const auto first = make_model(options), second = make_model(options);
  FullyShardOptions sharding;
  sharding.prefetch_depth = recorder.option("depth", 1);
  alignas(ShardedModel) std::array<std::byte, sizeof(ShardedModel)> place{};
  const auto shard = [&](nn::Module& root) {
    const auto destroy = [](ShardedModel* model) { model->~ShardedModel(); };
    std::unique_ptr<ShardedModel, decltype(destroy)> model(
        StepProbe::unbuilt_at(place.data(), root, recorder.shared_group(), sharding), destroy);
    StepProbe::make_units(*model);
    StepProbe::install_hooks(*model);
    return model;
  };
  const auto loss = [&](nn::Module& root) {
    return loss_of(root, options, recorder.seed(), 0, recorder.rank());
  };
  {
    const auto model = shard(*first);
    backward(*model, loss(*first));
  }
  std::uint64_t stream = 0;
  for (const nn::NamedParameter& each : first->named_parameters()) {
    Variable(each.variable).set_data(testing::noise(each.variable.shape(), ++stream));
  }
  const auto model = shard(*second);
  backward(*model, loss(*second));
  const auto record = [&] { return names_of(model->prefetcher()->recorded_order()); };
  recorder.note("record", record());
  recorder.collectives("call", [&] {
    const NoGradScope no_tape;
    recorder.values("loss", loss(*first).data());
  });
  recorder.note("record afterwards", record());
  second->find("layers.1")->register_forward_pre_hook([&](nn::Module&) {
    const NoGradScope no_tape;
    loss(*first);
    recorder.note("record in the middle", record());
  });
  loss(*second);
  recorder.note("record of the forward", record());
}

// The same for what 7.3 attaches: the first module is called when the masters of the second model's
// ignored parameters have changed. Nothing of the second is cast again.
void gone_replicated(Recorder& recorder) {
  Session first(recorder.asked().options, recorder.shared_group());
  Session second(recorder.asked().options, recorder.shared_group());
  FullyShardOptions sharding;
  sharding.ignored = recorder.option("ignored", Names());
  sharding.mixed_precision = {.param_dtype = DType::bfloat16, .reduce_dtype = DType::float32};
  alignas(ShardedModel) std::array<std::byte, sizeof(ShardedModel)> place{};
  const auto replicate = [&](nn::Module& root) {
    const auto destroy = [](ShardedModel* model) { model->~ShardedModel(); };
    std::unique_ptr<ShardedModel, decltype(destroy)> model(
        StepProbe::unbuilt_at(place.data(), root, recorder.shared_group(), sharding), destroy);
    StepProbe::make_units(*model);
    StepProbe::make_replicated(*model);
    return model;
  };
  replicate(first.root());
  const auto model = replicate(second.root());
  const nn::NamedParameter& ignored = StepProbe::replicated(*model).front();
  const Json before = bits_of(ignored.variable.data());
  ops::scale(StepProbe::master(*model, ignored), 2);
  struct Begun {};
  first.root().register_forward_pre_hook([](nn::Module&) { throw Begun{}; });
  try {
    loss_of(first.root(), recorder.asked().options, recorder.seed(), 0, 0);
  } catch (const Begun&) {
  }
  recorder.note("cast again", before != bits_of(ignored.variable.data()));
}

namespace {

/// What the model reads of ignored parameters when a forward begins, after their masters have been
/// doubled. Ends that forward before it computes: 7.2, which gathers the units, may be missing.
Json read_after_a_change(Session& session, std::uint64_t seed) {
  struct Begun {};
  for (const nn::NamedParameter& each : StepProbe::replicated(session.model())) {
    ops::scale(StepProbe::master(session.model(), each), 2);
  }
  session.root().register_forward_pre_hook([](nn::Module&) { throw Begun{}; });
  try {
    const NoGradScope no_tape;
    loss_of(session.root(), session.options(), seed, 0, 0);
  } catch (const Begun&) {
  }
  Json read = Json::array();
  for (const nn::NamedParameter& each : StepProbe::replicated(session.model())) {
    read.push_back({{"path", each.path}, {"bits", bits_of(each.variable.data())}});
  }
  return read;
}

/// The ignored parameters of which something else than the master is updated.
Names pieces_beside_masters(const ShardedModel& model) {
  Names others;
  for (const optim::Piece& piece : StepProbe::replicated_pieces(model)) {
    for (const nn::NamedParameter& each : StepProbe::replicated(model)) {
      if (each.path != piece.key) continue;
      const Tensor& master = StepProbe::master(model, each);
      if (piece.param.storage() != master.storage()) others.push_back(each.path);
    }
  }
  return others;
}

}  // namespace

// 7.3
void replicated(Recorder& recorder) {
  take_scratch();
  recorder.memory("before");
  std::unique_ptr<Session> session;
  const auto make = [&] {
    session = std::make_unique<Session>(recorder.asked().options, recorder.shared_group());
    session->begin_sharding();
    StepProbe::make_units(session->model());
    StepProbe::make_replicated(session->model());
  };
  recorder.peak("start", make);
  recorder.memory("started");
  recorder.note("generator", Context::current().generator().offset());
  recorder.note("engine", StepProbe::has_replicated_gradients(session->model()));
  Names on_meta;
  for (const nn::NamedParameter& each : StepProbe::replicated(session->model())) {
    if (each.variable.data().device() == kMeta) on_meta.push_back(each.path);
  }
  recorder.note("on meta", on_meta);
  Names formats;
  for (const nn::NamedParameter& each : StepProbe::replicated(session->model())) {
    formats.push_back(fmt::format("{} {}", each.path, name_of(each.variable.data().dtype())));
  }
  recorder.note("read as", formats);
  recorder.note("replicated", on_meta.empty() ? session->replicated_json() : Json::array());
  Json decays = Json::object();
  for (const optim::Piece& piece : StepProbe::replicated_pieces(session->model())) {
    decays[piece.key] = piece.decay;
  }
  recorder.note("decays", std::move(decays));
  Json buffers = Json::array();
  for (nn::Module* module : session->root().modules()) {
    for (const nn::Buffer& buffer : module->own_buffers()) {
      Json noted = {{"name", buffer.name},
                    {"module", module->path()},
                    {"bare", module->own_parameters().empty()},
                    {"initialized", buffer.is_initialized}};
      if (buffer.is_initialized) noted["bits"] = bits_of(buffer.tensor);
      buffers.push_back(std::move(noted));
    }
  }
  recorder.note("buffers", std::move(buffers));
  recorder.note("pieces beside the masters", pieces_beside_masters(session->model()));
  if (on_meta.empty() && session->model().options().mixed_precision.param_dtype) {
    recorder.note("read after a change", read_after_a_change(*session, recorder.seed()));
  }
}

}  // namespace fsdp::graded
