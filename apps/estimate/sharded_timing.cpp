#include "estimate/sharded_timing.h"

#include <algorithm>
#include <utility>

namespace fsdp::estimate {

ShardedTiming::ShardedTiming(const ModelShape& shape, const MemoryOptions& options,
                             const CostModel& machine, const KernelTimes& kernels)
    : StepTiming(shape, options, machine, kernels) {
  const int shards = options.shards(), first = options.rank / shards * shards;
  shards_ = group_of(first, shards, 1);
  replicas_ = group_of(options.rank % shards, options.replicas, shards);
  if (options.reshard == Reshard::within) {
    const int size = options.reshard_ranks;
    subgroup_ = group_of(options.rank / size * size, size, 1);
  }
  std::size_t kept = 0;
  for (const UnitShape& unit : shape.units) kept += unit.keep ? 1 : 0;
  const std::size_t in_backward = shape.units.size() - kept;
  std::size_t before = 0;  // units that are not kept
  for (std::size_t i = 0; i < shape.units.size(); ++i) {
    const UnitShape& unit = shape.units[i];
    units_.push_back({.shape = &unit,
                      .forward_place = i,
                      .backward_place = unit.keep ? kNowhere : in_backward - 1 - before});
    before += unit.keep ? 0 : 1;
  }
}

StepTime ShardedTiming::next_step() {
  for (int m = 0; m < options_.micro_steps; ++m) {
    run_micro_step(m, [&] {
      forward();
      backward(m);
    });
  }
  finish_step();
  return clock_.take();
}

// ------------------------------------------------------------------------------------- forward

void ShardedTiming::forward() {
  Unit* root = unit_at(shape_.root);
  pre_forward(root);
  for (std::size_t i = 0; i < shape_.segments.size(); ++i) {
    Unit* unit = unit_at(shape_.unit_of_segment[i]);
    pre_forward(unit);
    clock_.compute_for(TimePart::forward, times_of(i).forward);
    post_forward(unit, !is_around(i));
  }
  post_forward(root, true);
  clock_.compute_for(TimePart::forward, kernels_.loss.forward);
  if (!forward_order_.empty()) return;
  for (Unit& unit : units_) forward_order_.push_back(&unit);  // from here on it is known
  for (auto each = units_.rbegin(); each != units_.rend(); ++each) {
    if (!each->shape->keep) backward_order_.push_back(&*each);
  }
}

void ShardedTiming::pre_forward(Unit* unit) {
  if (unit == nullptr) return;
  finish_unshard(*unit);
  start_ahead(forward_order_, unit->forward_place + 1);
}

void ShardedTiming::post_forward(Unit* unit, bool has_tape) {
  if (unit == nullptr) return;
  if (has_tape && (unit->shape->keep || options_.reshard == Reshard::never)) return;
  const bool keeps_part = has_tape && options_.reshard == Reshard::within;
  for (const FlatShape& flat : unit->shape->flats) {
    if (!keeps_part) break;
    copy(TimePart::forward, flat.padded() / options_.reshard_ranks, formats_.param, formats_.param);
  }
  reshard(*unit);
  unit->has_part = keeps_part;
}

// ------------------------------------------------------------------------------------ backward

void ShardedTiming::backward(int m) {
  leaf_ = m / options_.micro_steps_per_reduction;
  clock_.compute_for(TimePart::backward, kernels_.loss.backward);
  Unit* root = unit_at(shape_.root);
  pre_backward(root);
  for (std::size_t i = shape_.segments.size(); i-- > 0;) {
    Unit* unit = unit_at(shape_.unit_of_segment[i]);
    if (is_around(i)) forward_again(i);
    pre_backward(unit);
    if (is_checkpointed(i) && !is_around(i)) {
      clock_.compute_for(TimePart::recomputation, times_of(i).forward);
    }
    clock_.compute_for(TimePart::backward, times_of(i).backward);
    post_backward(unit, m);
  }
  post_backward(root, m);
  finish_reduce();
  for (Unit& unit : units_) {
    unit.has_part = false;
    reshard(unit);
  }
}

void ShardedTiming::forward_again(std::size_t segment) {
  Unit* unit = unit_at(shape_.unit_of_segment[segment]);
  if (unit != nullptr) {
    finish_unshard(*unit);
    start_ahead(backward_order_, unit->backward_place + 1);
  }
  clock_.compute_for(TimePart::recomputation, times_of(segment).forward);
  post_forward(unit, /*has_tape=*/true);
}

void ShardedTiming::pre_backward(Unit* unit) {
  if (unit == nullptr) return;
  finish_unshard(*unit);
  start_ahead(backward_order_, unit->backward_place + 1);  // kept: from the first on
}

void ShardedTiming::post_backward(Unit* unit, int m) {
  if (unit == nullptr) return;
  for (const FlatShape& flat : unit->shape->flats) {
    fill(TimePart::gradients, flat.padded() - flat.numel, formats_.param);
  }
  reshard(*unit);
  finish_reduce();
  start_reduce(*unit, m);
}

// ------------------------------------------------------------------------------------ parameters

void ShardedTiming::start_unshard(Unit& unit) {
  if (unit.state != State::sharded) return;
  for (const FlatShape& flat : unit.shape->flats) {
    const std::int64_t shard = flat.shard();
    if (unit.has_part) {
      const std::int64_t part = flat.padded() / options_.reshard_ranks;
      unit.gather_end =
          clock_.start_collective(subgroup_, (subgroup_.size - 1) * part * formats_.param);
      continue;
    }
    std::int64_t ready = 0;
    if (options_.offload.params) {
      ready = clock_.start_copy(kFloatBytes * shard);
    } else if (formats_.casts_params) {
      copy(TimePart::gradients, shard, kFloatBytes, formats_.param);
    }
    unit.gather_end =
        clock_.start_collective(shards_, (shards_.size - 1) * shard * formats_.param, ready);
  }
  unit.state = State::in_flight;
  ++in_flight_;
}

void ShardedTiming::finish_unshard(Unit& unit) {
  start_unshard(unit);
  if (unit.state == State::unsharded) return;
  clock_.wait(TimePart::gathers, unit.gather_end);
  unit.state = State::unsharded;
  unit.has_part = false;
  --in_flight_;
}

void ShardedTiming::reshard(Unit& unit) {
  if (unit.state == State::in_flight) {
    clock_.wait(TimePart::gathers, unit.gather_end);
    --in_flight_;
  }
  unit.state = State::sharded;
}

/// Up to `prefetch_depth` units of `order`, from place `next` on.
void ShardedTiming::start_ahead(const Order& order, std::size_t next) {
  const int depth = options_.prefetch_depth;
  const int limit = options_.in_flight_limit == 0 ? depth : options_.in_flight_limit;
  for (int ahead = 0; ahead < depth && next < order.size(); ++ahead, ++next) {
    if (order[next]->state == State::sharded && in_flight_ >= limit) return;
    start_unshard(*order[next]);
  }
}

// -------------------------------------------------------------------------------------- gradients

void ShardedTiming::start_reduce(Unit& unit, int m) {
  const int group = options_.micro_steps_per_reduction;
  const bool reduces = (m + 1) % group == 0;
  for (const FlatShape& flat : unit.shape->flats) {
    const std::int64_t padded = flat.padded();
    if (formats_.casts_gradients) {
      copy(TimePart::gradients, padded, formats_.param, formats_.sum);
    }
    if (group > 1) {
      add(padded, additions_of_push(m % group));
      if (reduces) add(padded, additions_of_fold(group));
    }
    if (!reduces) continue;
    reduce_end_ =
        clock_.start_collective(shards_, (shards_.size - 1) * flat.shard() * formats_.sum);
    reducing_ = &unit;
  }
}

void ShardedTiming::finish_reduce() {
  if (reducing_ == nullptr) return;
  clock_.wait(TimePart::reductions, reduce_end_);
  push_shards(*std::exchange(reducing_, nullptr));
}

// A reduced shard becomes a leaf; in a mesh, when the next unit's comes, its sum over the replicas.
void ShardedTiming::push_shards(const Unit& unit) {
  if (options_.replicas == 1) return push_leaves(unit);
  finish_across();
  for (const FlatShape& flat : unit.shape->flats) {
    const std::int64_t nbytes = flat.shard() * formats_.sum;
    across_end_ =
        clock_.start_collective(replicas_, 2 * nbytes * (replicas_.size - 1) / replicas_.size);
  }
  across_ = &unit;
  leaf_across_ = leaf_;
}

void ShardedTiming::finish_across() {
  if (across_ == nullptr) return;
  const Unit& unit = *std::exchange(across_, nullptr);
  clock_.wait(TimePart::reductions, across_end_);
  push_leaves(unit);
}

void ShardedTiming::push_leaves(const Unit& unit) {
  const int leaf = options_.replicas == 1 ? leaf_ : leaf_across_;
  if (!options_.offload.grads) {
    for (const FlatShape& flat : unit.shape->flats) add(flat.shard(), additions_of_push(leaf));
    return;
  }
  finish_copies();
  for (const FlatShape& flat : unit.shape->flats) {
    copy_end_ = clock_.start_copy(flat.shard() * formats_.sum);
  }
  copied_ = &unit;
  leaf_copied_ = leaf;
}

void ShardedTiming::finish_copies() {
  if (copied_ == nullptr) return;
  const Unit& unit = *std::exchange(copied_, nullptr);
  clock_.wait(TimePart::copies, copy_end_);
  for (const FlatShape& flat : unit.shape->flats) {
    add(flat.shard(), additions_of_push(leaf_copied_), /*on_host=*/true);
  }
}

// ---------------------------------------------------------------------------------------- the step

std::int64_t ShardedTiming::valid(const FlatShape& flat) const {
  const int place = options_.rank % options_.shards();
  return std::clamp(flat.numel - place * flat.shard(), std::int64_t{0}, flat.shard());
}

void ShardedTiming::finish_step() {
  finish_across();
  finish_copies();
  const int leaves = options_.micro_steps / options_.micro_steps_per_reduction;
  for (const Unit& unit : units_) {
    for (const FlatShape& flat : unit.shape->flats) {
      const std::int64_t shard = flat.shard();
      add(shard, additions_of_fold(leaves), options_.offload.grads);
      if (options_.offload.params && !options_.offload.grads) {
        clock_.wait(TimePart::copies, clock_.start_copy(shard * formats_.sum));
      }
      if (formats_.widens_sums) {
        copy(TimePart::gradients, shard, formats_.sum, kFloatBytes, on_host());
      }
      scale(shard, on_host());
    }
  }
  if (options_.clips) {
    for (const Unit& unit : units_) {
      for (const FlatShape& flat : unit.shape->flats) square(valid(flat), on_host());
    }
    sum_counters(shards_);
  }
  const bool is_first = !std::exchange(has_state_, true);
  for (const Unit& unit : units_) {
    for (const FlatShape& flat : unit.shape->flats) update(flat.shard(), is_first, on_host());
  }
  for (const Unit& unit : units_) {
    for (const FlatShape& flat : unit.shape->flats) {
      for (int i = 0; i < 1 + options_.optimizer_states; ++i) {
        fill(TimePart::optimizer, flat.shard() - valid(flat), kFloatBytes, on_host());
      }
    }
  }
}

}  // namespace fsdp::estimate
