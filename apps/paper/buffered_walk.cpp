// A unit whose collectives have buffers of their own, as FSDP2's have (its _fsdp_collectives.py and
// _fsdp_param_group.py).
#include "paper/step_walk.h"

#include <utility>

namespace fsdp::paper {

// What is sent is a copy of the shards, if the format is another.
void StepWalk::gather_apart(Unit& unit) {
  books_.set_owner(unit.shape.name);
  const MemoryKind kind = is_forward_ ? MemoryKind::activation : MemoryKind::temp;
  std::int64_t sent = 0, received = 0;
  for (const FlatShape& flat : unit.shape.flats) {
    sent += casts(flat) ? flat.sent(formats_.param) : flat.in_float8;
    received += flat.gathered(formats_.param);
  }
  books_.hold(kind, sent);
  books_.hold(MemoryKind::all_gather, received);
  books_.drop(kind, sent);
  unit.state = State::in_flight;
  ++in_flight_;
}

// The unit's backward was not needed after all.
void StepWalk::drop_gathered(Unit& unit) {
  books_.set_owner(unit.shape.name);
  for (const FlatShape& flat : unit.shape.flats) {
    books_.drop(MemoryKind::all_gather, flat.gathered(formats_.param));
  }
  unit.state = State::sharded;
  --in_flight_;
}

// In forward the buffer lives until the next unit's has been copied out, so that they need not wait
// for each other.
void StepWalk::copy_out(Unit& unit) {
  std::int64_t nbytes = 0;
  for (const FlatShape& flat : unit.shape.flats) nbytes += flat.gathered(formats_.param);
  if (is_forward_) drop_lingering();
  books_.set_owner(unit.shape.name);
  books_.hold(MemoryKind::unsharded_param, nbytes);
  if (is_forward_) {
    lingering_ = nbytes;
    lingers_ = &unit;
  } else {
    books_.drop(MemoryKind::all_gather, nbytes);
  }
}

void StepWalk::drop_lingering() {
  if (lingering_ == 0) return;
  books_.set_owner(lingers_->shape.name);
  books_.drop(MemoryKind::all_gather, std::exchange(lingering_, 0));
}

// Backward has made the gradients as temporary tensors. They are copied into the buffer, which is
// one until its collective has begun, and freed. The result is the shard of the gradient, and is
// added to that of earlier micro-steps.
void StepWalk::reduce_apart(Unit& unit, int m) {
  books_.set_owner(unit.shape.name);
  std::int64_t made = 0, sent = 0, received = 0;
  for (const FlatShape& flat : unit.shape.flats) {
    if (!flat.is_trained) continue;
    made += formats_.param * flat.numel;
    sent += formats_.sum * flat.padded();
    received += kFloatBytes * flat.shard();
  }
  if (made == 0) return;
  books_.relabel(MemoryKind::temp, MemoryKind::unsharded_grad, made);
  books_.hold(MemoryKind::temp, sent);
  books_.drop(MemoryKind::unsharded_grad, made);
  books_.hold(MemoryKind::sharded_grad, received, shards());
  books_.relabel(MemoryKind::temp, MemoryKind::reduce_scatter, sent);
  if (m > 0) books_.drop(MemoryKind::sharded_grad, received, shards());
  reducing_.unit = &unit;
}

void StepWalk::drop_reduced() {
  const Unit& unit = *std::exchange(reducing_, {}).unit;
  books_.set_owner(unit.shape.name);
  for (const FlatShape& flat : unit.shape.flats) {
    if (flat.is_trained) books_.drop(MemoryKind::reduce_scatter, formats_.sum * flat.padded());
  }
}

}  // namespace fsdp::paper
