// Task 5: what a runner can be asked to do with a sharded optimizer.
//
// Options of every scenario: flats, scale, double (flats.h), optimizer ("adamw", "momentum" or
// "sgd"), steps, begin_at (the number of steps that the optimizer begins with), poison (flats.h),
// poisoned ("param", "grad", "state": whose padding; all if there is none), bad ("inf" or "nan": an
// element of a gradient of rank bad_rank). Of "clip": max_norm, unlimited (max_norm is infinite),
// others (the caller counts a 3 on every rank). Of "state": alone.
#include "graded/decorated.h"
#include "graded/recorder.h"
#include "task5/shards.h"
#include "tensor/ops.h"

#include <cmath>
#include <limits>
#include <map>

namespace fsdp::graded {
namespace {

std::string key_of(const std::string& name, std::size_t index) {
  return name + "." + std::to_string(index);
}

Tensor filled(std::int64_t numel, double value) {
  const Tensor tensor = Tensor::empty({numel});
  ops::fill(tensor, value);
  return tensor;
}

/// All shards and, without padding, their gradients.
void note_values(Recorder& recorder, const Shards& shards, const std::string& when) {
  for (std::size_t i = 0; i < shards.flats().size(); ++i) {
    const FlatParameter& flat = *shards.flats()[i];
    recorder.values(when + key_of("shard", i), flat.shard());
    if (!flat.requires_grad() || !flat.shard_grad().is_defined()) continue;
    recorder.values(when + key_of("gradient", i),
                    flat.shard_grad().narrow(0, 0, flat.valid_shard_numel()));
  }
}

// ------------------------------------------------------------------------------------------- 5.1

void pieces(Recorder& recorder) {
  Shards shards(recorder.asked(), recorder.rank(), recorder.world_size());
  const ShardedOptimizer optimizer(shards.pointers(), optimizer_of(recorder.asked()),
                                   recorder.shared_group());
  recorder.note("before gradients", optimizer.pieces().size());
  shards.set_gradients(1);
  note_values(recorder, shards, "");
  std::vector<optim::Piece> all;
  recorder.peak("peak", [&] { all = optimizer.pieces(); });
  const std::vector<FlatParameter*> flats = shards.trainable();
  Json lines = Json::array(), places = Json::array();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const optim::Piece& piece = all[i];
    lines.push_back(
        fmt::format("{}: unit {}, {}", piece.key, piece.unit, piece.decay ? "decay" : "no decay"));
    if (i >= flats.size()) continue;
    const auto is = [](const Tensor& a, const Tensor& b, const char* name) -> std::string {
      if (!a.is_defined()) return "undefined";
      if (a.storage() != b.storage()) return "another tensor";
      const bool is_whole = a.offset() == b.offset() && a.shape() == b.shape();
      return std::string(is_whole ? "" : "a part of ") + name;
    };
    places.push_back(fmt::format("param is {}, grad is {}",
                                 is(piece.param, flats[i]->shard(), "the shard"),
                                 is(piece.grad, flats[i]->shard_grad(), "its gradient")));
  }
  recorder.note("pieces", lines);
  recorder.note("places", places);
  note_values(recorder, shards, "afterwards ");
  all.clear();
  shards.drop_gradients();
  recorder.memory("dropped");
  shards.set_gradients(2);
  bool fresh = true;
  all = optimizer.pieces();
  for (std::size_t i = 0; i < all.size() && i < flats.size(); ++i) {
    fresh = fresh && all[i].grad.storage() == flats[i]->shard_grad().storage();
  }
  recorder.note("fresh", fresh);
}

// ------------------------------------------------------------------------------------------- 5.2

/// The padding of all tensors of a rank that a case poisons.
std::vector<Tensor> poisoned(Recorder& recorder, const Shards& shards,
                             ShardedOptimizer& optimizer) {
  const std::string only = recorder.option("poisoned", std::string());
  const auto is = [&](const char* kind) { return only.empty() || only == kind; };
  std::vector<Tensor> all;
  const std::vector<optim::Piece> pieces = optimizer.pieces();
  std::size_t next = 0;
  for (const auto& flat : shards.flats()) {
    if (is("param")) all.push_back(padding_of(*flat, flat->shard()));
    if (!flat->requires_grad()) continue;
    if (is("grad")) all.push_back(padding_of(*flat, flat->shard_grad()));
    for (const auto& [name, tensor] : optimizer.optimizer().state(pieces.at(next++))) {
      if (is("state")) all.push_back(padding_of(*flat, tensor));
    }
  }
  return all;
}

void step(Recorder& recorder) {
  Shards shards(recorder.asked(), recorder.rank(), recorder.world_size());
  ShardedOptimizer optimizer(shards.pointers(), optimizer_of(recorder.asked()),
                             recorder.shared_group());
  const int steps = recorder.option("steps", 1);
  optimizer.optimizer().set_steps(recorder.option("begin_at", 0));
  recorder.memory("before");
  for (int i = 1; i <= steps; ++i) {
    shards.set_gradients(i);
    if (poison_of(recorder.asked()) != 0) {
      for (const Tensor& padding : poisoned(recorder, shards, optimizer)) {
        ops::fill(padding, poison_of(recorder.asked()));
      }
    }
    const std::string name = std::to_string(i);
    const auto once = [&] { optimizer.step(learning_rate(i)); };
    if (i == 2) {
      recorder.peak("peak", once);
      continue;
    }
    const auto tried = [&] { recorder.attempt("step " + name, once); };
    recorder.events("events " + name, [&] { recorder.collectives("collectives " + name, tried); },
                    {EventKind::step});
    if (recorder.seen().at("step " + name).at("type") != "none") return;
  }
  recorder.memory("after");
  recorder.note("steps", optimizer.optimizer().steps());
  std::vector<optim::Piece> pieces = optimizer.pieces();
  std::size_t next = 0;
  for (std::size_t i = 0; i < shards.flats().size(); ++i) {
    const FlatParameter& flat = *shards.flats()[i];
    recorder.values(key_of("param", i), flat.shard());
    if (!flat.requires_grad()) continue;
    for (const auto& [name, tensor] : optimizer.optimizer().state(pieces.at(next++))) {
      recorder.values(key_of(name, i), tensor);
    }
  }
  pieces.clear();
  note_values(recorder, shards, "");
  if (shards.trainable().empty()) return;
  shards.trainable().back()->set_shard_grad(Tensor());
  recorder.attempt("without a gradient", [&] { optimizer.step(0.1); });
  shards.drop_gradients();
  recorder.memory("dropped");
  recorder.attempt("without any gradient", [&] { optimizer.step(0.1); });
  recorder.note("steps then", optimizer.optimizer().steps());
  note_values(recorder, shards, "then ");
}

// ------------------------------------------------------------------------------------------- 5.3

/// Puts what is not finite into the first gradient of a rank, as the case says.
void spoil(Recorder& recorder, const Shards& shards) {
  const std::string bad = recorder.option("bad", std::string());
  if (bad.empty() || recorder.rank() != recorder.option("bad_rank", 0)) return;
  ops::fill(shards.trainable().front()->shard_grad().narrow(0, 0, 1),
            std::strtod(bad.c_str(), nullptr));
}

void squares(Recorder& recorder) {
  Shards shards(recorder.asked(), recorder.rank(), recorder.world_size());
  const ShardedOptimizer optimizer(shards.pointers(), optimizer_of(recorder.asked()),
                                   recorder.shared_group());
  shards.set_gradients(1);
  for (FlatParameter* flat : shards.trainable()) {
    ops::fill(padding_of(*flat, flat->shard_grad()), poison_of(recorder.asked()));
  }
  spoil(recorder, shards);
  ExactSquareSum sum;
  sum.add(filled(1, 3));  // somebody else's
  recorder.collectives("collectives",
                       [&] { recorder.peak("peak", [&] { optimizer.add_squares(sum); }); });
  recorder.note("value", sum.value());
}

// ------------------------------------------------------------------------------------------- 5.4

void clip(Recorder& recorder) {
  Shards shards(recorder.asked(), recorder.rank(), recorder.world_size());
  ShardedOptimizer optimizer(shards.pointers(), optimizer_of(recorder.asked()),
                             recorder.shared_group());
  shards.set_gradients(1);
  for (FlatParameter* flat : shards.trainable()) {
    ops::fill(padding_of(*flat, flat->shard_grad()), poison_of(recorder.asked()));
  }
  double norm = 0;
  const double max_norm = recorder.option("unlimited", false)
                              ? std::numeric_limits<double>::infinity()
                              : recorder.option("max_norm", 1.0);
  const auto others = [&] {  // what counts besides the shards
    ExactSquareSum squares;
    if (recorder.option("others", false)) squares.add(filled(1, 3));
    return squares;
  };
  const auto clipping = [&] { norm = optimizer.clip_grad_norm(max_norm, others()); };
  recorder.collectives("collectives", [&] { recorder.attempt("clipping", clipping); });
  if (recorder.seen().at("clipping").at("type") != "none") return;
  recorder.note("norm", norm);
  for (std::size_t i = 0; i < shards.flats().size(); ++i) {
    const FlatParameter& flat = *shards.flats()[i];
    if (!flat.requires_grad()) continue;
    recorder.values(key_of("gradient", i),
                    flat.shard_grad().narrow(0, 0, flat.valid_shard_numel()));
  }
  recorder.note("norm again", optimizer.clip_grad_norm(max_norm, others()));
  if (recorder.option("bad", std::string()).empty()) return;
  shards.set_gradients(2);
  spoil(recorder, shards);
  recorder.attempt("bad", [&] { optimizer.clip_grad_norm(1); });
  recorder.attempt("bad without a limit",
                   [&] { optimizer.clip_grad_norm(std::numeric_limits<double>::infinity()); });
  note_values(recorder, shards, "bad ");
}

/// Another rank fails after every collective was started and before it has ended.
class FailingPeer : public Decorated {
 public:
  using Decorated::Decorated;
  std::unique_ptr<Work::Pending> start(const Collective&) override {
    struct Failed : Work::Pending {
      bool is_done() const override { return true; }
      void wait() override { throw Aborted("another rank failed"); }
    };
    return std::make_unique<Failed>();
  }

 private:
  std::shared_ptr<Backend> decorate(std::shared_ptr<Backend> part) override { return part; }
};

void clip_beside_a_failure(Recorder& recorder) {
  Shards shards(recorder.asked(), recorder.rank(), recorder.world_size());
  const std::shared_ptr<Backend> backend(&recorder.group().backend(), [](Backend*) {});
  ShardedOptimizer optimizer(
      shards.pointers(), optimizer_of(recorder.asked()),
      std::make_shared<ProcessGroup>(std::make_shared<FailingPeer>(backend)));
  shards.set_gradients(1);
  bool failed = false;
  try {
    optimizer.clip_grad_norm(recorder.option("max_norm", 1.0));
  } catch (const Aborted&) {
    failed = true;
  }
  recorder.note("failed", failed);
  note_values(recorder, shards, "");
}

// ------------------------------------------------------------------------------------------- 5.5

Json to_json(const io::StateSlice& slice) {
  return {{"name", slice.name},
          {"shape", slice.full_shape},
          {"begin", slice.begin},
          {"values", slice.values.to_vector<float>()}};
}

void note_slices(Recorder& recorder, const std::string& key,
                 const std::vector<io::StateSlice>& slices) {
  Json all = Json::array();
  for (const io::StateSlice& slice : slices) all.push_back(to_json(slice));
  recorder.note(key, std::move(all));
}

void state(Recorder& recorder) {
  Shards shards(recorder.asked(), recorder.rank(), recorder.world_size());
  // "alone": the norm's group has other ranks than the shards' (in a mesh, task 8, it has).
  const bool alone = recorder.option("alone", false);
  ShardedOptimizer optimizer(
      shards.pointers(), optimizer_of(recorder.asked()),
      alone ? recorder.group().split_contiguous(1) : recorder.shared_group());
  const int steps = recorder.option("steps", 1);
  for (int i = 1; i <= steps; ++i) {
    shards.set_gradients(i);
    optimizer.step(learning_rate(i));
  }
  recorder.memory("before");
  std::vector<io::StateSlice> slices;
  const auto cut = [&] { slices = optimizer.state_slices(); };
  recorder.collectives("collectives", [&] { recorder.attempt("cutting", cut); });
  if (recorder.seen().at("cutting").at("type") != "none") return;
  recorder.memory("after");
  note_slices(recorder, "slices", slices);
  shards.set_gradients(steps + 1);
  optimizer.step(learning_rate(steps + 1));
  note_slices(recorder, "later", slices);  // the same ones: they are views
}

/// W' ranks of a world, one after the other: steps, saving and loading need no communication.
struct Ranks {
  Ranks(const Case& asked, int world_size) {
    for (int rank = 0; rank < world_size; ++rank) {
      shards.push_back(std::make_unique<Shards>(asked, rank, world_size));
      optimizers.push_back(std::make_unique<ShardedOptimizer>(shards.back()->pointers(),
                                                              optimizer_of(asked), nullptr));
    }
  }
  void step(int number) {
    for (std::size_t rank = 0; rank < shards.size(); ++rank) {
      shards[rank]->set_gradients(number);
      optimizers[rank]->step(learning_rate(number));
    }
  }
  std::vector<io::StateSlice> slices() {
    std::vector<io::StateSlice> all;
    for (const auto& optimizer : optimizers) {
      for (io::StateSlice& slice : optimizer->state_slices()) all.push_back(std::move(slice));
    }
    return all;
  }
  std::vector<std::unique_ptr<Shards>> shards;
  std::vector<std::unique_ptr<ShardedOptimizer>> optimizers;
};

using Saved = std::map<std::string, Tensor>;

Saved save(Ranks& ranks) {
  Saved saved;
  for (const io::StateSlice& slice : ranks.slices()) {
    Tensor& whole = saved[slice.name];
    if (!whole.is_defined()) whole = filled(numel_of(slice.full_shape), NAN);
    ops::copy(whole.narrow(0, slice.begin, slice.values.numel()), slice.values);
  }
  return saved;
}

void load(Ranks& ranks, const Saved& saved, int steps) {
  for (const io::StateSlice& slice : ranks.slices()) {
    ops::copy(slice.values, saved.at(slice.name).narrow(0, slice.begin, slice.values.numel()));
  }
  for (const auto& optimizer : ranks.optimizers) optimizer->optimizer().set_steps(steps);
}

/// Steps at one W, saves, loads at another W, makes one step more; saves what it loaded, and loads
/// that at the first W into ranks that have not made a step.
void reload(Recorder& recorder) {
  const int steps = recorder.option("steps", 2);
  Ranks first(recorder.asked(), recorder.option("saved_at", 1));
  for (int i = 1; i <= steps; ++i) first.step(i);
  Ranks ranks(recorder.asked(), recorder.option("loaded_at", 1));
  ranks.step(99);  // whatever it was before
  load(ranks, save(first), steps);
  note_slices(recorder, "loaded", ranks.slices());
  ranks.step(steps + 1);
  note_slices(recorder, "continued", ranks.slices());
  Ranks last(recorder.asked(), recorder.option("saved_at", 1));
  load(last, save(ranks), steps + 1);
  note_slices(recorder, "loaded again", last.slices());
  last.step(steps + 2);
  note_slices(recorder, "continued again", last.slices());
}

}  // namespace

Scenarios scenarios() {
  return {{"pieces", pieces}, {"step", step},   {"squares", squares},
          {"clip", clip},     {"state", state}, {"clip beside a failure", clip_beside_a_failure},
          {"reload", reload}};
}

}  // namespace fsdp::graded
