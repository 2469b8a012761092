// What follows the gradients of a step: the norm, the optimizer, and what makes room for the next.
#include "paper/step_walk.h"
#include "tensor/costs.h"

#include <utility>

namespace fsdp::paper {

void StepWalk::finish_step() {
  begin_phase("gradients");
  finish_across();
  finish_copies();
  books_.set_owner("");
  finish_gradients();
  whole_->finish_gradients();
  if (recipe_.clip > 0) {
    begin_phase("clip");
    add_norm();
  }
  begin_phase("optimizer");
  update();
  whole_->broadcast();
  for (const Unit& unit : units_) {
    books_.set_owner(unit.shape.name);
    for (const FlatShape& flat : unit.shape.flats) {
      if (flat.is_trained) {
        books_.drop(MemoryKind::sharded_grad, kFloatBytes * flat.shard(), shards());
      }
    }
  }
  whole_->zero_grad();
}

void StepWalk::finish_gradients() {
  const int reductions = recipe_.micro_steps / recipe_.micro_steps_per_reduction;
  if (has_buffers_) return;  // they are summed, divided and in the masters' format already
  for (const Unit& unit : units_) {
    for (const FlatShape& flat : unit.shape.flats) {
      if (!flat.is_trained) continue;
      const std::int64_t sum = formats_.sum * flat.shard();
      books_.fold_leaves(MemoryKind::sharded_grad, flat.shard(), reductions, sums());
      if (sums() != shards()) {  // copied to the host
        books_.hold(MemoryKind::sharded_grad, sum, shards());
        books_.drop(MemoryKind::sharded_grad, sum, sums());
        books_.wait(TimePart::copies, books_.start_copy(sum));
      }
      if (formats_.widens_sums) {
        books_.replace(MemoryKind::sharded_grad, sum, kFloatBytes * flat.shard(), shards());
      }
      books_.divide_mean(flat.shard(), shards());
    }
  }
}

void StepWalk::add_norm() {
  if (has_buffers_) return;  // a few numbers
  constexpr std::int64_t kCounters = costs::kSquareCounters, kCounterBytes = 8;
  books_.hold(MemoryKind::temp, kCounterBytes * kCounters);
  for (const Unit& unit : units_) {
    for (const FlatShape& flat : unit.shape.flats) {
      if (flat.is_trained) books_.square(valid(flat), shards());
    }
  }
  whole_->add_squares();
  books_.wait(TimePart::updates, books_.start(&WireBytes::norm, CollectiveOp::all_reduce, kCounters,
                                              kCounterBytes, shard_group_));
  books_.drop(MemoryKind::temp, kCounterBytes * kCounters);
}

void StepWalk::update() {
  const bool is_first = !std::exchange(has_state_, true);
  const int states = recipe_.optimizer.states();
  for (const Unit& unit : units_) {
    books_.set_owner(unit.shape.name);
    for (const FlatShape& flat : unit.shape.flats) {
      if (!flat.is_trained) continue;
      if (is_first) {
        books_.hold(MemoryKind::optimizer, states * kFloatBytes * flat.shard(), shards());
        if (has_buffers_) {  // the number of its steps
          books_.hold(MemoryKind::optimizer, kFloatBytes * flat.parameters, shards());
        }
      }
      books_.update(flat.shard(), is_first, shards());
    }
  }
  for (const Unit& unit : units_) {  // what is padding stays zero
    for (const FlatShape& flat : unit.shape.flats) {
      for (int i = 0; flat.is_trained && i < 1 + states; ++i) {
        books_.fill(TimePart::optimizer, flat.shard() - valid(flat), kFloatBytes, shards());
      }
    }
  }
  whole_->update(is_first);
}

}  // namespace fsdp::paper
