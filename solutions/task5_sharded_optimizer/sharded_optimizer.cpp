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

// SOLUTION 5.2:
namespace {

/// The part of a shard-sized tensor that is padding; it is at the end.
Tensor padding_of(const FlatParameter& flat, const Tensor& shard_sized) {
  const std::int64_t valid = flat.valid_shard_numel();
  return shard_sized.narrow(0, valid, flat.shard_numel() - valid);
}

}  // namespace
// END SOLUTION

// ------------------------------------------------------------------- TODO 5.1
// List what the optimizer updates.
//
// Keep:  a frozen flat parameter has no gradient, no state and no decay, so it is not updated. Keys
//        are unique, although a unit may hold several flat parameters.
std::vector<optim::Piece> ShardedOptimizer::pieces() const {
  // SOLUTION 5.1: todo(flats_)
  std::vector<optim::Piece> pieces;
  std::map<std::string, int> seen;
  for (const FlatParameter* flat : flats_) {
    const int index = seen[flat->unit()]++;
    if (!flat->requires_grad()) continue;
    pieces.push_back({.key = fmt::format("{}#{}", flat->unit(), index),
                      .param = flat->shard(),
                      .grad = flat->shard_grad(),
                      .decay = flat->decay,
                      .unit = flat->unit()});
  }
  return pieces;
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 5.2
// One step.
//
// Keep:  afterwards the padding is zero, in every shard and in every state tensor. Values in it
//        must not reach the next all-gather, nor a norm.
void ShardedOptimizer::step(double lr) {
  // SOLUTION 5.2: todo(lr, optimizer_, flats_)
  std::vector<optim::Piece> updated = pieces();
  optimizer_->step(updated, lr);
  std::size_t next = 0;
  for (const FlatParameter* flat : flats_) {
    ops::fill(padding_of(*flat, flat->shard()), 0);
    if (!flat->requires_grad()) continue;
    for (const auto& [name, tensor] : optimizer_->state(updated[next++])) {
      ops::fill(padding_of(*flat, tensor), 0);
    }
  }
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 5.3
// Add this rank's share to the sum of squares.
void ShardedOptimizer::add_squares(ExactSquareSum& sum) const {
  // SOLUTION 5.3: todo(sum, flats_)
  for (const FlatParameter* flat : flats_) {
    if (!flat->requires_grad()) continue;
    sum.add(flat->shard_grad().narrow(0, 0, flat->valid_shard_numel()));
  }
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 5.4
// Clip by the norm of the whole gradient.
//
// Keep:  all ranks compute with the norm of the whole gradient, whose bits do not depend on W.
// Hint:  the counters of ExactSquareSum are integers, which add exactly.
double ShardedOptimizer::clip_grad_norm(double max_norm, ExactSquareSum squares) {
  // SOLUTION 5.4: todo(max_norm, squares, group_, flats_)
  add_squares(squares);
  group_->all_reduce(squares.counters(), ReduceOp::sum, {"grad_norm", Phase::optimizer}).wait();
  const double norm = optim::norm_of(squares);
  const double factor = optim::clip_factor(norm, max_norm);
  if (factor < 1) {
    for (const FlatParameter* flat : flats_) {
      if (flat->requires_grad()) ops::scale(flat->shard_grad(), factor);
    }
  }
  return norm;
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 5.5
// List the training state by parameter path.
//
// Hint:  FlatParameter::pieces_of(rank) lists the elements of each parameter in the shard. Every
//        state tensor has the shape of the shard.
std::vector<io::StateSlice> ShardedOptimizer::state_slices() {
  // SOLUTION 5.5: todo(flats_, optimizer_)
  std::vector<optim::Piece> updated = pieces();
  std::vector<io::StateSlice> slices;
  std::size_t next = 0;
  for (const FlatParameter* flat : flats_) {
    std::map<std::string, Tensor> tensors{{"param", flat->shard()}};
    if (flat->requires_grad()) {
      const optim::PieceState& state = optimizer_->state(updated[next++]);
      tensors.insert(state.begin(), state.end());
    }
    for (const ShardPiece& piece : flat->pieces_of(flat->rank())) {
      const Span& span = flat->spans()[piece.span];
      for (const auto& [name, tensor] : tensors) {
        slices.push_back({fmt::format("{}/{}", name, span.path), span.shape, piece.param_begin,
                          tensor.narrow(0, piece.shard_begin, piece.numel)});
      }
    }
  }
  return slices;
  // END SOLUTION
}

}  // namespace fsdp
