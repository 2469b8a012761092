// Task 8, optional: a mesh of replicas.     Handout: tasks/task8_beyond/README.md
// Edit only this file and checkpoint.cpp. Types and data members: mesh.h
// Check with:  make test-task8

#include "task8_beyond/mesh.h"

#include "base/check.h"
#include "base/todo.h"

#include <algorithm>
#include <utility>

namespace fsdp {

namespace {

/// What a mesh's group makes for every model that is sharded over it.
std::shared_ptr<ReplicaSum> make_reduction(std::shared_ptr<ProcessGroup> replicas) {
  return std::make_shared<ReplicaReduction>(std::move(replicas));
}

}  // namespace

// ------------------------------------------------------------------- TODO 8.1
// Divide the ranks: which ones are this rank's replica, and which ones hold the same shard?
//
// Keep:  the group works without peers too, on the fake group: who is in it follows from counts,
//        not from what other ranks pass.
// Hint:  ProcessGroup::split_contiguous, split_strided, set_replicas (with make_reduction).
std::shared_ptr<ProcessGroup> make_mesh(ProcessGroup& world, int replicas) {
  FSDP_CHECK(replicas >= 1 && world.size() % replicas == 0,
             "{} ranks cannot be divided into {} replicas: {} must divide {}", world.size(),
             replicas, replicas, world.size());
  // SOLUTION 8.1: todo(world, replicas, make_reduction)
  const int shards = world.size() / replicas;
  std::shared_ptr<ProcessGroup> group = world.split_contiguous(shards);
  group->set_replicas(world.split_strided(shards), make_reduction);
  return group;
  // END SOLUTION
}

ReplicaReduction::ReplicaReduction(std::shared_ptr<ProcessGroup> replicas)
    : replicas_(std::move(replicas)) {}

// ------------------------------------------------------------------- TODO 8.2
// Start the sum of one shard over the replicas, label {unit, gradient}.
//
// Keep:  a unit may have several flat parameters. Their sums are under way together: start() for
//        the second does not wait for the first. But shards of two units are never under way, nor
//        two shards of one flat parameter (a model of one unit, in the next micro-step).
// Set:   unit_, under_way_.
void ReplicaReduction::start(TreeAccumulator& sums, const Tensor& shard, const std::string& unit) {
  // SOLUTION 8.2: todo(sums, shard, unit, replicas_)
  const bool is_next = std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& each) {
    return unit != unit_ || each.sums == &sums;
  });
  if (is_next) finish();
  unit_ = unit;
  under_way_.push_back(
      {&sums, shard, replicas_->all_reduce(shard, ReduceOp::sum, {unit, Phase::gradient})});
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 8.3
// Finish what is under way: as leaves, or (the step was abandoned) without a trace of it.
//
// Keep:  after a failed step, clear() leaves nothing behind: no collective, no shard.
void ReplicaReduction::finish() {
  // SOLUTION 8.3: todo(under_way_, unit_)
  for (UnderWay& each : under_way_) {
    each.work.wait();
    each.sums->push(each.shard);
  }
  clear();
  // END SOLUTION
}

void ReplicaReduction::clear() {
  // SOLUTION 8.3: todo(under_way_, unit_)
  under_way_.clear();  // ~Work waits
  unit_.clear();
  // END SOLUTION
}

}  // namespace fsdp
