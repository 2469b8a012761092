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
// List what the optimizer updates.
//
// Keep:  a frozen flat parameter has no gradient, no state and no decay, so it is not updated. Keys
//        are unique, although a unit may hold several flat parameters.
std::vector<optim::Piece> ShardedOptimizer::pieces() const {
  todo("5.1", flats_);
}

// ------------------------------------------------------------------- TODO 5.2
// One step.
//
// Keep:  afterwards the padding is zero, in every shard and in every state tensor. Values in it
//        must not reach the next all-gather, nor a norm.
void ShardedOptimizer::step(double lr) {
  todo("5.2", lr, optimizer_, flats_);
}

// ------------------------------------------------------------------- TODO 5.3
// Add this rank's share to the sum of squares.
void ShardedOptimizer::add_squares(ExactSquareSum& sum) const {
  todo("5.3", sum, flats_);
}

// ------------------------------------------------------------------- TODO 5.4
// Clip by the norm of the whole gradient.
//
// Keep:  all ranks compute with the norm of the whole gradient, whose bits do not depend on W.
// Hint:  the counters of ExactSquareSum are integers, which add exactly.
double ShardedOptimizer::clip_grad_norm(double max_norm, ExactSquareSum squares) {
  todo("5.4", max_norm, squares, group_, flats_);
}

// ------------------------------------------------------------------- TODO 5.5
// List the training state by parameter path.
//
// Hint:  FlatParameter::pieces_of(rank) lists the elements of each parameter in the shard. Every
//        state tensor has the shape of the shard.
std::vector<io::StateSlice> ShardedOptimizer::state_slices() {
  todo("5.5", flats_, optimizer_);
}

}  // namespace fsdp
