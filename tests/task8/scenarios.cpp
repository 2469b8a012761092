// Task 8: what a runner can be asked to do with a mesh, and with whole models. Options: shards.h
// and task7/models.h.
#include "task8/scenarios.h"
#include "comm/fake_group.h"
#include "graded/device.h"
#include "graded/precision.h"
#include "graded/recorder.h"
#include "optim/optimizer.h"
#include "support/numbers.h"
#include "support/reshard.h"
#include "task7/models.h"
#include "task7_integration/integration.h"
#include "task8/blocks.h"
#include "task8/probe.h"
#include "task8/shards.h"
#include "task8_beyond/checkpoint.h"
#include "task8_beyond/mesh.h"

#include <map>
#include <memory>

namespace fsdp::graded {
namespace {

const std::vector<EventKind> kTransfers = {EventKind::issue, EventKind::wait};

// ------------------------------------------------------------------------------------------- 8.1

/// The ranks of `world` that are in `group`, in its order.
Json members_of(ProcessGroup& group, int rank_in_world) {
  const Tensor own = Tensor::from(std::vector<std::int32_t>{rank_in_world}, {1});
  const Tensor all = Tensor::empty({group.size()}, DType::int32);
  group.all_gather(all, own, {"members", Phase::none}).wait();
  return all.to_vector<std::int32_t>();
}

void mesh(Recorder& recorder) {
  const int replicas = recorder.option("replicas", 2);
  std::shared_ptr<ProcessGroup> group;
  recorder.attempt("making", [&] { group = make_mesh(recorder.group(), replicas); });
  if (group == nullptr) return;
  recorder.note("group", members_of(*group, recorder.rank()));
  const bool is_mesh = group->replicas() != nullptr;
  recorder.note("column", is_mesh ? members_of(*group->replicas(), recorder.rank()) : Json());
  recorder.attempt("indivisible", [&] { make_mesh(recorder.group(), recorder.world_size() + 1); });
  if (!is_mesh) return;
  // Two models over one mesh.
  const std::shared_ptr<ReplicaSum> one = group->make_replica_sum();
  const std::shared_ptr<ReplicaSum> other = group->make_replica_sum();
  recorder.note("sums", one == nullptr ? "none" : one == other ? "shared" : "own");

  recorder.attempt("making without peers", [&] {
    Json places = Json::array();
    for (int rank = 0; rank < 12; ++rank) {
      ProcessGroup world = make_fake_group(rank, 12);
      const auto alone = make_mesh(world, 3);
      places.push_back({alone->size(), alone->rank(), replica_count(*alone), replica_of(*alone)});
    }
    recorder.note("places without peers", std::move(places));
  });
}

// ------------------------------------------------------------------------------------- 8.2 and 8.3

/// The sums that calls of start() go to, by unit and flat parameter.
class Sums {
 public:
  TreeAccumulator& of(const std::string& unit, int flat) {
    const auto owner = std::make_shared<const Owner>(Owner{unit, "gradient sum"});
    return sums_.try_emplace(name_of_sum(unit, flat), MemoryKind::sharded_grad, owner)
        .first->second;
  }
  Json leaves() const {
    Json leaves = Json::object();
    for (const auto& [name, sum] : sums_) leaves[name] = sum.leaves();
    return leaves;
  }
  std::map<std::string, TreeAccumulator>& all() { return sums_; }

 private:
  std::map<std::string, TreeAccumulator> sums_;
};

Tensor make_shard(const Recorder& recorder, int flat, int call) {
  const AllocationScope as_leaf(MemoryKind::reduce_scatter);
  return shard_of(recorder.asked(), flat, recorder.rank(), call);
}

/// finish() is step 8.3. Here it is counted, and ends what is under way without a leaf.
class FinishCounted : public ReplicaReduction {
 public:
  using ReplicaReduction::ReplicaReduction;
  void finish() override {
    if (StepProbe::under_way(*this) > 0) ++finished;
    StepProbe::drop(*this);
  }
  int finished = 0;  // while something was under way
};

void start(Recorder& recorder) {
  take_scratch();  // its arena is no part of any measurement
  FinishCounted reduction(recorder.shared_group());
  Sums sums;
  const Starts starts = starts_of(recorder.asked().options);
  std::vector<Tensor> shards;
  for (int call = 0; call < std::ssize(starts); ++call) {
    // Not a structured binding: clang 14 takes none into a lambda.
    const std::string& unit = starts[static_cast<std::size_t>(call)].first;
    const auto flat = starts[static_cast<std::size_t>(call)].second;
    const std::string name = std::to_string(call);
    TreeAccumulator& sum = sums.of(unit, flat);
    shards.push_back(make_shard(recorder, flat, call));
    const auto begin = [&] { reduction.start(sum, shards.back(), unit); };
    recorder.memory("before " + name);
    recorder.events(
        "events " + name, [&] { recorder.collectives("collectives " + name, begin); }, kTransfers);
    recorder.memory("after " + name);
    recorder.note("under way " + name, StepProbe::under_way(reduction));
    recorder.note("own sums " + name, StepProbe::last_sums(reduction) == &sum);
    recorder.note("unit " + name, StepProbe::unit(reduction));
    recorder.note("finished " + name, std::exchange(reduction.finished, 0));
    recorder.note("leaves " + name, sums.leaves());
  }
  StepProbe::wait(reduction);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (!shards[i].storage()->is_allocated()) continue;
    recorder.values("shard " + std::to_string(i), shards[i]);
  }
  StepProbe::drop(reduction);
}

/// Calls of start() and one of finish(), with what happens in each.
void play(Recorder& recorder, ReplicaReduction& reduction, Sums& sums, const Starts& starts,
          const std::string& prefix, int first_call) {
  for (int call = 0; call < std::ssize(starts); ++call) {
    const auto& [unit, flat] = starts[static_cast<std::size_t>(call)];
    const std::string name = prefix + std::to_string(call);
    TreeAccumulator& sum = sums.of(unit, flat);
    const Tensor shard = make_shard(recorder, flat, first_call + call);
    const std::string& of = unit;
    recorder.events(
        "events " + name, [&] { reduction.start(sum, shard, of); }, kTransfers);
    recorder.note("leaves " + name, sums.leaves());
  }
}

void note_sums(Recorder& recorder, Sums& sums) {
  for (auto& [name, sum] : sums.all()) {
    if (sum.leaves() > 0) recorder.values("sum " + name, sum.fold());
  }
}

void finish(Recorder& recorder) {
  take_scratch();  // its arena is no part of any measurement
  ReplicaReduction reduction(recorder.shared_group());
  Sums sums;
  const auto end = [&] { reduction.finish(); };
  recorder.events("nothing under way", end, kTransfers);
  play(recorder, reduction, sums, starts_of(recorder.asked().options), "", 0);
  recorder.memory("before");
  recorder.events(
      "events", [&] { recorder.peak("peak", end); }, kTransfers);
  recorder.memory("after");
  recorder.note("under way", StepProbe::under_way(reduction));
  recorder.note("leaves", sums.leaves());
  recorder.events("again", end, kTransfers);
  recorder.note("leaves again", sums.leaves());
  note_sums(recorder, sums);
}

void clear(Recorder& recorder) {
  ReplicaReduction reduction(recorder.shared_group());
  Sums sums;
  const Json& options = recorder.asked().options;
  const Starts starts = starts_of(options);
  play(recorder, reduction, sums, starts, "", 0);
  recorder.events(
      "clearing", [&] { reduction.clear(); }, kTransfers);
  recorder.note("under way", StepProbe::under_way(reduction));
  recorder.memory("cleared");
  recorder.note("leaves", sums.leaves());
  for (auto& [name, sum] : sums.all()) sum.clear();  // as ShardSums::clear() does next
  play(recorder, reduction, sums, starts_of(options, "then_starts"), "then ",
       static_cast<int>(starts.size()));
  reduction.finish();
  recorder.note("leaves at the end", sums.leaves());
  note_sums(recorder, sums);
}

// ------------------------------------------------------------------------------- 8.3, whole models

Json bits_of(const Tensor& tensor) {
  const std::vector<float> values = testing::floats_of(tensor);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  return Json::binary(std::vector<std::uint8_t>(bytes, bytes + values.size() * sizeof(float)));
}

Json slices_of(ShardedModel& model, bool with_replicated) {
  Json all = Json::array();
  for (const io::StateSlice& slice : model.state_slices(with_replicated)) {
    all.push_back({{"name", slice.name},
                   {"begin", slice.begin},
                   {"shape", slice.full_shape},
                   {"bits", bits_of(slice.values)}});
  }
  return all;
}

/// Options besides: replicas (0: there is no mesh), checkpoint ("inside" or "around" every block),
/// micro_batches of a step, per_reduction, steps, clip, given_up (a step that ends
/// after one backward, before each step), measure (notes the peak of every step, and no events).
void training(Recorder& recorder) {
  const Json& options = recorder.asked().options;
  ProcessGroup& world = recorder.group();
  take_scratch();
  const bool measures = options.value("measure", false);
  const auto build = [&] { return make_model(options); };
  DeferredInit deferred;
  const auto root = measures ? deferred.build(build) : build();
  freeze(*root, options);
  FullyShardOptions sharding;
  sharding.reshard_after_forward = testing::reshard_of(options.value("group", 0));
  sharding.prefetch_depth = options.value("depth", 1);
  sharding.ignored = options.value("ignored", Names{});
  sharding.mixed_precision = precision_of(options);
  sharding.decays = [&](const nn::NamedParameter& each) { return decays(options, each.path); };
  if (measures) sharding.deferred = &deferred;
  const auto checkpoints = options.value("checkpoint", std::string());
  for (nn::Module* block : blocks_of(*root)) {
    if (checkpoints == "inside") checkpoint(*block);
  }
  const int replicas = options.value("replicas", 0);
  const auto model = fully_shard(
      *root, replicas == 0 ? recorder.shared_group() : make_mesh(world, replicas), sharding);
  for (nn::Module* block : blocks_of(*root)) {
    if (checkpoints == "around") checkpoint_around(model->unit(block->path()));
  }
  model->attach_optimizer([] { return std::make_shared<optim::AdamW>(optim::AdamW::Options{}); });
  Json units = Json::array();
  for (const auto& unit : model->units()) {
    std::int64_t flats = 0;
    for (const auto& flat : unit->flat_parameters()) flats += flat->requires_grad() ? 1 : 0;
    units.push_back({{"name", unit->name()}, {"flats", flats}});
  }
  recorder.note("units", std::move(units));

  const int micro_steps = options.value("micro_batches", world.size()) / world.size();
  const optim::StepPlan plan{micro_steps, options.value("per_reduction", 1)};
  const double clip = options.value("clip", 0.0);
  Json losses = Json::array(), norms = Json::array();
  const auto backward = [&](int step, int m) {
    const auto j = static_cast<int>(plan.micro_batch(m, world.rank(), world.size()));
    const Variable loss = loss_of(*root, options, recorder.seed(), step, j);
    losses.push_back({{"step", step}, {"j", j}, {"loss", loss.data().item()}});
    loss.backward();
    model->end_micro_step();
  };
  for (int step = 0; step < options.value("steps", 2); ++step) {
    const auto reduce = [&] {
      model->begin_step(plan);
      for (int m = 0; m < micro_steps; ++m) backward(step, m);
      model->finish_gradients();
    };
    const auto update = [&] {
      if (clip > 0) norms.push_back(model->clip_grad_norm(clip));
      model->step(rate_of(step));
      model->zero_grad();
    };
    if (options.value("given_up", false)) {
      model->begin_step(plan);
      backward(step + 1, 0);
      losses.erase(losses.size() - 1);
    }
    const std::string name = std::to_string(step);
    if (measures) {
      recorder.peak("step " + name, [&] { reduce(), update(); });
    } else {
      recorder.events("events " + name, reduce, kTransfers);
      update();
    }
  }
  recorder.note("losses", std::move(losses));
  recorder.note("norms", std::move(norms));
  if (!measures) recorder.note("slices", slices_of(*model, world.rank() == 0));
}

}  // namespace

Scenarios scenarios() {
  Scenarios all = checkpoint_scenarios();
  all.merge(Scenarios{{"mesh", mesh},
                      {"start", start},
                      {"finish", finish},
                      {"clear", clear},
                      {"sharded_training", training}});
  return all;
}

}  // namespace fsdp::graded
