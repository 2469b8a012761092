/// @file
/// Task 7: a sharded model of a case on one rank, and worlds inside a case.
///
/// Options besides those of models.h: wrap (paths of the modules that become units; none: the
/// default policy), ignored, no_decay, group (reshard after forward), depth, limit, meta (the model
/// is built without memory); micro_batches (J of the global batch), steps, clip, loss_scale,
/// no_sync (L = M) or per_reduction (L); abandons (before a step begins, and again before it
/// updates, a forward is recorded that no backward follows); evaluates (after each update, without
/// a tape); param and reduce (mixed precision, graded/precision.h); offload ("parameters" or
/// "gradients", which includes these; for begin_sharding() alone).
#pragma once

#include "graded/recorder.h"
#include "task7/models.h"
#include "task7/probe.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::graded {

class Session {
 public:
  /// Builds the model (and nothing else).
  Session(const Json& options, std::shared_ptr<ProcessGroup> group);

  /// All three steps of the constructor, or none of them.
  void shard();
  void begin_sharding();
  void attach_optimizer();

  /// How the case cuts a step into micro-steps.
  optim::StepPlan plan() const;
  /// A forward that is recorded, and that no backward follows.
  void abandon_forward(std::uint64_t seed, int step);
  /// The loss of micro-batch 0 of a step as the model is now, {first, second}: the first forward
  /// leaves no unit unsharded, so the second comes from the shards alone. And {sharded}: whether
  /// every unit was sharded before.
  Json evaluate(std::uint64_t seed, int step);
  /// Steps [first, first + count) of a training; `after` is called after each, before zero_grad.
  void train(std::uint64_t seed, int first, int count,
             const std::function<void(int step)>& after = {});
  /// The losses of this rank's micro-batches: [{step, j, loss}]; and a norm a step.
  Json losses = Json::array();
  Json norms = Json::array();
  Json evaluations = Json::array();

  nn::Module& root() { return *root_; }
  ShardedModel& model() { return *model_; }
  ProcessGroup& group() { return *group_; }
  const Json& options() const { return options_; }
  /// The shards by unit, "<unit>#<flat>": {numel, …}, and what is not sharded.
  Json units_json();
  /// [{name, begin, shape, bits}] of the shards' parameters alone.
  Json shard_slices();
  Json replicated_json();
  Json all_slices();   ///< both
  Json copies_json();  ///< what the model reads of what is not sharded
  /// {count, zero}: how many shards have a gradient, and whether all these hold zeros only.
  Json gradients_left();

 private:
  FullyShardOptions sharding();

  Json options_;
  std::shared_ptr<ProcessGroup> group_;
  DeferredInit deferred_;
  std::shared_ptr<nn::Module> root_;
  std::unique_ptr<ShardedModel> model_;
};

Json to_json(const io::StateSlice& slice);
Json to_json(const std::vector<io::StateSlice>& slices);
/// Bits of the elements as float32.
Json bits_of(const Tensor& tensor);
/// Bytes above what was held before, at the peak of `call`.
std::int64_t peak_of(const std::function<void()>& call);
/// The names in a folder, in alphabetical order, without those that begin with a dot.
Names listing(const std::filesystem::path& folder);

/// Runs `body` on `ranks` ranks of their own and returns what each noted. A collective that is for
/// a checkpoint is told to `watch` on the rank that starts it. An unsolved step goes through; any
/// other failure is returned in `failure`, or goes through if that is null.
/// What `watch` throws, the call throws.
using Watch = std::function<void(int rank)>;
/// Throws on rank 0 at its n-th collective for a checkpoint, as a full disk would.
Watch fails_at(int n);
std::vector<Json> in_world(int ranks, std::uint64_t seed,
                           const std::function<void(ProcessGroup&, Json&)>& body,
                           std::string* failure = nullptr, const Watch& watch = {});

// scenarios_units.cpp: 7.1, 7.2, 7.3
void units(Recorder& recorder);
void splits(Recorder& recorder);
void hooks(Recorder& recorder);
void left_out(Recorder& recorder);
void gone(Recorder& recorder);
void gone_replicated(Recorder& recorder);
void replicated(Recorder& recorder);
// scenarios_full.cpp: 7.5
void visit(Recorder& recorder);
void save_full(Recorder& recorder);
void load_full(Recorder& recorder);
// scenarios_handover.cpp: 7.5
void handover(Recorder& recorder);
// scenarios_checkpoint.cpp: 7.6
void slices(Recorder& recorder);
void resume(Recorder& recorder);
void damaged(Recorder& recorder);

}  // namespace fsdp::graded
