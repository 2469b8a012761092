// Task 5: the sharded optimizer.     Handout: tasks/task5_sharded_optimizer/README.md
// Edit only this file. Types and data members: sharded_optimizer.h
// Check with:  make test-task5

#include "task5_sharded_optimizer/sharded_optimizer.h"

#include "base/check.h"
#include "base/todo.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace fsdp {

ShardedOptimizer::ShardedOptimizer(std::vector<FlatParameter*> flats,
                                   std::shared_ptr<optim::Optimizer> optimizer,
                                   std::shared_ptr<ProcessGroup> group)
    : flats_(std::move(flats)), optimizer_(std::move(optimizer)), group_(std::move(group)) {}

// ------------------------------------------------------------------- TODO 5.1
// What the optimizer is to update.
//
// Keep:  frozen flat parameters are left out: no gradient, no state, no decay. Keys are unique: a
//        unit may hold several flat parameters, so count them within their unit, frozen ones
//        included.
std::vector<optim::Piece> ShardedOptimizer::pieces() const {
  todo("5.1", flats_);
}

// ------------------------------------------------------------------- TODO 5.2
// One step.
//
// Keep:  padding is zero afterwards, in the shard and in every state tensor: whatever got there
//        must not travel into the next all-gather, nor into a norm.
void ShardedOptimizer::step(double lr) {
  todo("5.2", lr, optimizer_, flats_);
}

// ------------------------------------------------------------------- TODO 5.3
// This rank's share of the sum of squares.
void ShardedOptimizer::add_squares(ExactSquareSum& sum) const {
  todo("5.3", sum, flats_);
}

// ------------------------------------------------------------------- TODO 5.4
// Clip by the norm of the whole gradient.
//
// Hint:  the counters of ExactSquareSum are integers: all_reduce(sum) over them is exact. A norm
//        of the local shard is a different number on every rank.
double ShardedOptimizer::clip_grad_norm(double max_norm) {
  todo("5.4", max_norm, group_, flats_);
}

// ------------------------------------------------------------------- TODO 5.5
// The training state by parameter path.
//
// Hint:  FlatParameter::pieces_of(rank) says which elements of which parameters the shard holds.
//        Every state tensor is shaped like the shard.
std::vector<nn::StateSlice> ShardedOptimizer::state_slices() {
  todo("5.5", flats_, optimizer_);
}

}  // namespace fsdp
