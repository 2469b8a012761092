// What becomes of one unit: the rules of tasks 3, 4 and 6, in bytes.
#include "estimate/step_simulation.h"

#include <utility>

namespace fsdp::estimate {

// ------------------------------------------------------------------------------------- parameters

void StepSimulation::start_unshard(Unit& unit) {
  if (unit.state != State::sharded) return;
  unit.has_cast = !unit.has_part;
  for (const FlatShape& flat : unit.shape.flats) {
    ledger_.hold(MemoryKind::unsharded_param, formats_.param * flat.padded());
    if (unit.has_cast && casts(flat))
      ledger_.hold(MemoryKind::all_gather, formats_.param * flat.shard());
  }
  unit.state = State::in_flight;
  ++in_flight_;
}

void StepSimulation::finish_unshard(Unit& unit) {
  start_unshard(unit);
  if (unit.state == State::in_flight) --in_flight_;
  unit.state = State::unsharded;
  drop_cast(unit);
  drop_part(unit);
}

void StepSimulation::drop_part(Unit& unit) {
  if (!std::exchange(unit.has_part, false)) return;
  for (const FlatShape& flat : unit.shape.flats) {
    ledger_.drop(MemoryKind::unsharded_param, part_of(flat));
  }
}

void StepSimulation::drop_cast(Unit& unit) {
  if (!std::exchange(unit.has_cast, false)) return;
  for (const FlatShape& flat : unit.shape.flats) {
    if (casts(flat)) ledger_.drop(MemoryKind::all_gather, formats_.param * flat.shard());
  }
}

void StepSimulation::reshard(Unit& unit) {
  drop_cast(unit);
  for (const FlatShape& flat : unit.shape.flats) {
    ledger_.drop(MemoryKind::unsharded_param, formats_.param * flat.padded());
  }
  if (unit.state == State::in_flight) --in_flight_;
  unit.state = State::sharded;
}

/// Up to `prefetch_depth` units of `order`, from place `next` on.
void StepSimulation::start_ahead(const Order& order, std::size_t next) {
  const int depth = options_.prefetch_depth;
  const int limit = options_.in_flight_limit == 0 ? depth : options_.in_flight_limit;
  for (int ahead = 0; ahead < depth && next < order.size(); ++ahead, ++next) {
    Unit& unit = *order[next];
    if (unit.state == State::sharded && in_flight_ >= limit) return;
    start_unshard(unit);
  }
}

std::int64_t StepSimulation::shard_of(const FlatShape& flat) const {
  return (flat.has_master ? kFloatBytes : formats_.param) * flat.shard();
}

std::int64_t StepSimulation::part_of(const FlatShape& flat) const {
  return formats_.param * (flat.padded() / options_.reshard_ranks);
}

void StepSimulation::pre_forward(Unit* unit) {
  if (unit == nullptr) return;
  finish_unshard(*unit);
  start_ahead(forward_order_, unit->forward_next);
}

void StepSimulation::post_forward(Unit* unit, bool has_tape) {
  if (unit == nullptr) return;
  if (has_tape && (unit->shape.keep || options_.reshard == Reshard::never)) return;
  const bool keeps_part = has_tape && options_.reshard == Reshard::within;
  for (const FlatShape& flat : unit->shape.flats) {
    if (keeps_part) ledger_.hold(MemoryKind::unsharded_param, part_of(flat));
  }
  reshard(*unit);
  unit->has_part = keeps_part;
}

// -------------------------------------------------------------------------------------- gradients

void StepSimulation::pre_backward(Unit* unit) {
  if (unit == nullptr) return;
  finish_unshard(*unit);
  start_ahead(backward_order_, unit->backward_next);
  for (const FlatShape& flat : unit->shape.flats) {
    if (flat.is_trained) ledger_.hold(MemoryKind::unsharded_grad, formats_.param * flat.padded());
  }
}

void StepSimulation::post_backward(Unit* unit, int m) {
  if (unit == nullptr) return;
  reshard(*unit);
  finish_reduce(m);
  start_reduce(*unit, m);
}

void StepSimulation::start_reduce(Unit& unit, int m) {
  const int group = options_.micro_steps_per_reduction;
  const bool reduces = (m + 1) % group == 0;
  const MemoryKind leaf =
      formats_.casts_gradients ? MemoryKind::reduce_scatter : MemoryKind::unsharded_grad;
  for (const FlatShape& flat : unit.shape.flats) {
    if (!flat.is_trained) continue;
    const std::int64_t nbytes = formats_.sum * flat.padded();
    if (formats_.casts_gradients) {
      ledger_.hold(leaf, nbytes);
      ledger_.drop(MemoryKind::unsharded_grad, formats_.param * flat.padded());
    }
    if (group > 1) {
      push_leaf(ledger_, leaf, MemoryKind::unsharded_grad, nbytes, m % group);
      if (reduces) fold_leaves(ledger_, MemoryKind::unsharded_grad, nbytes, group);
    }
    if (!reduces) continue;
    ledger_.hold(MemoryKind::reduce_scatter, formats_.sum * flat.shard());
    reducing_ = &unit;
  }
}

void StepSimulation::finish_reduce(int m) {
  if (reducing_ == nullptr) return;
  for (const FlatShape& flat : reducing_->shape.flats) {
    if (!flat.is_trained) continue;
    ledger_.drop(kind_of_reduced(), formats_.sum * flat.padded());
  }
  finish_across();
  across_ = std::exchange(reducing_, nullptr);
  leaf_across_ = m / options_.micro_steps_per_reduction;
  if (options_.replicas == 1) finish_across();
}

// A reduced shard becomes a leaf. In a mesh it is summed over the replicas before, until the next
// unit's comes.
void StepSimulation::finish_across() {
  if (across_ == nullptr) return;
  for (const FlatShape& flat : across_->shape.flats) {
    if (!flat.is_trained || options_.offload.grads) continue;
    push_leaf(ledger_, MemoryKind::reduce_scatter, MemoryKind::sharded_grad,
              formats_.sum * flat.shard(), leaf_across_);
  }
  Unit* const unit = std::exchange(across_, nullptr);
  if (!options_.offload.grads) return;
  finish_copies();
  copied_ = unit;
  leaf_copied_ = leaf_across_;
  for (const FlatShape& flat : copied_->shape.flats) {
    if (flat.is_trained) host_.hold(MemoryKind::sharded_grad, formats_.sum * flat.shard());
  }
}

// With offload.grads, it becomes one on the host, when it has been copied there: until the next
// unit's comes, too.
void StepSimulation::finish_copies() {
  if (copied_ == nullptr) return;
  for (const FlatShape& flat : copied_->shape.flats) {
    if (!flat.is_trained) continue;
    const std::int64_t nbytes = formats_.sum * flat.shard();
    ledger_.drop(MemoryKind::reduce_scatter, nbytes);
    push_leaf(host_, MemoryKind::sharded_grad, MemoryKind::sharded_grad, nbytes, leaf_copied_);
  }
  copied_ = nullptr;
}

// A copy in the format of the sums; under no_sync the sum of several.
MemoryKind StepSimulation::kind_of_reduced() const {
  return formats_.casts_gradients && options_.micro_steps_per_reduction == 1
             ? MemoryKind::reduce_scatter
             : MemoryKind::unsharded_grad;
}

}  // namespace fsdp::estimate
