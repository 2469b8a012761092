// What becomes of one unit: the rules of tasks 3, 4 and 6.
#include "paper/step_walk.h"

#include <utility>

namespace fsdp::paper {

// ------------------------------------------------------------------------------------- parameters

void StepWalk::start_unshard(Unit& unit) {
  if (unit.state != State::sharded) return;
  books_.set_owner(unit.shape.name);
  if (has_buffers_) return gather_apart(unit);
  unit.has_cast = !unit.has_part;
  for (const FlatShape& flat : unit.shape.flats) {
    books_.hold(MemoryKind::unsharded_param, formats_.param * flat.padded());
    if (unit.has_part) {
      unit.gather_end = books_.start(&WireBytes::gathers, CollectiveOp::all_gather,
                                     flat.padded() / recipe_.sharding.reshard_after_forward.ranks,
                                     formats_.param, subgroup_);
      continue;
    }
    std::int64_t ready = 0;
    if (casts(flat)) {
      books_.hold(MemoryKind::all_gather, formats_.param * flat.shard());
      if (recipe_.sharding.offload.params) {
        ready = books_.start_copy(kFloatBytes * flat.shard());
      } else {
        books_.cast(TimePart::gradients, flat.shard(), kFloatBytes, formats_.param);
      }
    }
    unit.gather_end = books_.start(&WireBytes::gathers, CollectiveOp::all_gather, flat.shard(),
                                   formats_.param, shard_group_, ready);
  }
  unit.state = State::in_flight;
  ++in_flight_;
}

void StepWalk::finish_unshard(Unit& unit) {
  start_unshard(unit);
  books_.set_owner(unit.shape.name);
  if (unit.state == State::in_flight) {
    books_.wait(TimePart::gathers, unit.gather_end);
    --in_flight_;
    if (has_buffers_) copy_out(unit);
  }
  unit.state = State::unsharded;
  drop_cast(unit);
  drop_part(unit);
}

void StepWalk::drop_part(Unit& unit) {
  if (!std::exchange(unit.has_part, false)) return;
  for (const FlatShape& flat : unit.shape.flats) {
    books_.drop(MemoryKind::unsharded_param, part_of(flat));
  }
}

void StepWalk::drop_cast(Unit& unit) {
  if (!std::exchange(unit.has_cast, false)) return;
  for (const FlatShape& flat : unit.shape.flats) {
    if (casts(flat)) books_.drop(MemoryKind::all_gather, formats_.param * flat.shard());
  }
}

void StepWalk::reshard(Unit& unit) {
  if (has_buffers_ && unit.state == State::in_flight) return drop_gathered(unit);
  if (unit.state == State::in_flight) {
    books_.wait(TimePart::gathers, unit.gather_end);
    --in_flight_;
  }
  drop_cast(unit);
  books_.set_owner(unit.shape.name);
  for (const FlatShape& flat : unit.shape.flats) {
    books_.drop(MemoryKind::unsharded_param, flat.gathered(formats_.param));
  }
  unit.state = State::sharded;
}

/// `unit` is about to compute. (Backward goes on from the first place after a unit that is kept.)
void StepWalk::start_ahead(const Unit& unit, bool is_backward) {
  const Order& order = is_backward ? backward_order_ : forward_order_;
  const UnitPlaces next =
      UnitPlaces(order).subspan(is_backward ? unit.backward_next : unit.forward_next);
  for (const int place : schedule_->gathers_now(place_of(unit), is_backward, next)) {
    Unit& other = units_[static_cast<std::size_t>(place)];
    if (other.state == State::sharded && in_flight_ >= schedule_->gathers_in_flight()) return;
    start_unshard(other);
  }
}

void StepWalk::pre_forward(Unit* unit) {
  if (unit == nullptr) return;
  finish_unshard(*unit);
  start_ahead(*unit, /*is_backward=*/false);
}

void StepWalk::post_forward(Unit* unit, bool has_tape) {
  if (unit == nullptr) return;
  const AfterForward then = has_tape ? schedule_->after_forward(unit->shape) : AfterForward::free;
  if (then == AfterForward::keep) return;
  const bool keeps_part = then == AfterForward::keep_part;
  for (const FlatShape& flat : unit->shape.flats) {
    if (!keeps_part) break;
    books_.hold(MemoryKind::unsharded_param, part_of(flat));
    books_.cast(TimePart::forward, flat.padded() / recipe_.sharding.reshard_after_forward.ranks,
                formats_.param, formats_.param);
  }
  reshard(*unit);
  unit->has_part = keeps_part;
}

// -------------------------------------------------------------------------------------- gradients

void StepWalk::pre_backward(Unit* unit) {
  if (unit == nullptr) return;
  finish_unshard(*unit);
  start_ahead(*unit, /*is_backward=*/true);
  if (has_buffers_) return;
  books_.set_owner(unit->shape.name);
  for (const FlatShape& flat : unit->shape.flats) {
    if (flat.is_trained) {
      books_.hold(MemoryKind::unsharded_grad, formats_.param * flat.padded());
    }
  }
}

void StepWalk::post_backward(Unit* unit, int m) {
  if (unit == nullptr) return;
  for (const FlatShape& flat : unit->shape.flats) {
    if (!flat.is_trained) continue;
    books_.fill(TimePart::gradients, flat.padded() - flat.numel, formats_.param);
  }
  reshard(*unit);
  finish_reduce();
  start_reduce(*unit, m);
}

void StepWalk::start_reduce(Unit& unit, int m) {
  books_.set_owner(unit.shape.name);
  if (has_buffers_) return reduce_apart(unit, m);
  const int group = recipe_.micro_steps_per_reduction;
  const MemoryKind leaf =
      formats_.casts_gradients ? MemoryKind::reduce_scatter : MemoryKind::unsharded_grad;
  for (const FlatShape& flat : unit.shape.flats) {
    if (!flat.is_trained) continue;
    if (formats_.casts_gradients) {
      books_.hold(leaf, formats_.sum * flat.padded());
      books_.drop(MemoryKind::unsharded_grad, formats_.param * flat.padded());
      books_.cast(TimePart::gradients, flat.padded(), formats_.param, formats_.sum);
    }
    if (group > 1) {
      books_.push_leaf(leaf, MemoryKind::unsharded_grad, flat.padded(), m % group);
      if (schedule_->reduces(m)) {
        books_.fold_leaves(MemoryKind::unsharded_grad, flat.padded(), group);
      }
    }
    if (!schedule_->reduces(m)) continue;
    books_.hold(MemoryKind::reduce_scatter, formats_.sum * flat.shard());
    const std::int64_t end = books_.start(&WireBytes::reductions, CollectiveOp::reduce_scatter,
                                          flat.shard(), formats_.sum, shard_group_);
    reducing_ = {&unit, end, m / group};
  }
}

// In a mesh, the shards are summed over the replicas before they become a leaf, until those of the
// next unit come.
void StepWalk::finish_reduce() {
  if (reducing_.unit == nullptr) return;
  books_.set_owner(reducing_.unit->shape.name);
  books_.wait(TimePart::reductions, reducing_.end);
  if (has_buffers_) return drop_reduced();
  for (const FlatShape& flat : reducing_.unit->shape.flats) {
    if (flat.is_trained) books_.drop(kind_of_reduced(), formats_.sum * flat.padded());
  }
  finish_across();
  across_ = std::exchange(reducing_, {});
  if (recipe_.replicas == 1) return finish_across();
  for (const FlatShape& flat : across_.unit->shape.flats) {
    if (!flat.is_trained) continue;
    across_.end = books_.start(&WireBytes::across, CollectiveOp::all_reduce, flat.shard(),
                               formats_.sum, replica_group_);
  }
}

// With offload.grads, they become one on the host, when they have been copied there: until those of
// the next unit come, too.
void StepWalk::finish_across() {
  if (across_.unit == nullptr) return;
  const Travel done = std::exchange(across_, {});
  books_.set_owner(done.unit->shape.name);
  books_.wait(TimePart::reductions, done.end);
  if (recipe_.sharding.offload.grads) {
    finish_copies();
    copied_ = done;
  }
  for (const FlatShape& flat : done.unit->shape.flats) {
    if (!flat.is_trained) continue;
    if (recipe_.sharding.offload.grads) {
      books_.hold(MemoryKind::sharded_grad, formats_.sum * flat.shard(), MemorySpace::host);
      copied_.end = books_.start_copy(formats_.sum * flat.shard());
    } else {
      books_.push_leaf(MemoryKind::reduce_scatter, MemoryKind::sharded_grad, flat.shard(),
                       done.leaf);
    }
  }
}

void StepWalk::finish_copies() {
  if (copied_.unit == nullptr) return;
  const Travel done = std::exchange(copied_, {});
  books_.set_owner(done.unit->shape.name);
  books_.wait(TimePart::copies, done.end);
  for (const FlatShape& flat : done.unit->shape.flats) {
    if (!flat.is_trained) continue;
    books_.drop(MemoryKind::reduce_scatter, formats_.sum * flat.shard());
    books_.push_leaf(MemoryKind::sharded_grad, MemoryKind::sharded_grad, flat.shard(), done.leaf,
                     MemorySpace::host);
  }
}

MemoryKind StepWalk::kind_of_reduced() const {
  return formats_.casts_gradients && recipe_.micro_steps_per_reduction == 1
             ? MemoryKind::reduce_scatter
             : MemoryKind::unsharded_grad;
}

}  // namespace fsdp::paper
