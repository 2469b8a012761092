#include "estimate/schedule.h"

#include "device/thread_pool.h"
#include "tensor/exact_norm.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fsdp::estimate {

using nn::CallState;

namespace {

constexpr std::int64_t kFloat = 4;  // bytes, of parameters, gradients and optimizer state alike

int ones(int m) { return std::popcount(static_cast<unsigned>(m)); }

}  // namespace

Schedule::Schedule(ModelShape shape, ActivationTable table, MemoryOptions options)
    : shape_(std::move(shape)), table_(std::move(table)), options_(std::move(options)) {
  segments_.push_back(&table_.embedding);
  segments_.resize(shape_.segments.size() - 1, &table_.block);
  segments_.push_back(&table_.head);
  for (const UnitShape& unit : shape_.units) {
    units_.push_back({unit});
    for (const FlatShape& flat : unit.flats) {
      ledger_.hold(MemoryKind::sharded_param, kFloat * flat.shard());
    }
  }
  ledger_.hold(MemoryKind::unsharded_param, kFloat * shape_.whole);
  ledger_.hold(MemoryKind::buffer, shape_.buffers);
  ledger_.hold(MemoryKind::temp,
               options_.threads * static_cast<std::int64_t>(ThreadPool::kScratchBytes));
}

StepMemory Schedule::next_step() {
  StepMemory memory;
  for (int m = 0; m < options_.micro_steps; ++m) memory.micro_steps.push_back(micro_step(m));
  memory.step_peak = finish_step();
  memory.at_rest = ledger_.now();
  return memory;
}

MicroStepMemory Schedule::micro_step(int m) {
  MicroStepMemory memory;
  if (m == 0 && has_buckets()) ledger_.hold(MemoryKind::unsharded_grad, kFloat * shape_.whole);
  ledger_.hold(MemoryKind::activation, table_.data);
  ledger_.reset_peak();
  forward(memory);
  memory.forward_peak = ledger_.peak();
  ledger_.reset_peak();
  backward(m, memory);
  memory.backward_peak = ledger_.peak();
  ledger_.drop(MemoryKind::activation, table_.data + table_.loss_value);
  return memory;
}

// ------------------------------------------------------------------------------------- forward

void Schedule::forward(MicroStepMemory& memory) {
  Unit* root = unit_at(shape_.root);
  snap("root", CallState::before_pre_forward, memory);
  pre_forward(root);
  snap("root", CallState::after_pre_forward, memory);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    Unit* unit = unit_at(shape_.unit_of_segment[i]);
    const std::string& name = shape_.segments[i];
    snap(name, CallState::before_pre_forward, memory);
    pre_forward(unit);
    snap(name, CallState::after_pre_forward, memory);
    walk(segments_[i]->forward);
    snap(name, CallState::before_post_forward, memory);
    post_forward(unit);
    snap(name, CallState::after_post_forward, memory);
  }
  snap("root", CallState::before_post_forward, memory);
  post_forward(root);
  snap("root", CallState::after_post_forward, memory);
  walk(table_.loss.forward);

  forward_order_.clear();  // from here on it is known; units_ are in this order
  backward_order_.clear();
  for (Unit& unit : units_) forward_order_.push_back(&unit);
  for (auto each = units_.rbegin(); each != units_.rend(); ++each) {
    if (!each->shape.keep) backward_order_.push_back(&*each);
  }
}

void Schedule::pre_forward(Unit* unit) {
  if (unit == nullptr) return;
  finish_unshard(*unit);
  start_ahead(forward_order_, *unit);
}

void Schedule::post_forward(Unit* unit) {
  if (unit == nullptr || unit->shape.keep || options_.reshard_group == 1) return;
  const bool keeps_part = options_.reshard_group > 1;
  for (const FlatShape& flat : unit->shape.flats) {
    if (keeps_part) ledger_.hold(MemoryKind::unsharded_param, part_of(flat));
  }
  reshard(*unit);
  unit->has_part = keeps_part;
}

// ------------------------------------------------------------------------------------ backward

void Schedule::backward(int m, MicroStepMemory& memory) {
  walk(table_.loss.backward);
  Unit* root = unit_at(shape_.root);
  snap("root", CallState::before_pre_backward, memory);
  pre_backward(root);
  snap("root", CallState::after_pre_backward, memory);
  for (std::size_t i = segments_.size(); i-- > 0;) {
    Unit* unit = unit_at(shape_.unit_of_segment[i]);
    const std::string& name = shape_.segments[i];
    snap(name, CallState::before_pre_backward, memory);
    pre_backward(unit);
    snap(name, CallState::after_pre_backward, memory);
    walk(segments_[i]->backward);
    snap(name, CallState::before_post_backward, memory);
    post_backward(unit, m);
    snap(name, CallState::after_post_backward, memory);
  }
  snap("root", CallState::before_post_backward, memory);
  post_backward(root, m);
  snap("root", CallState::after_post_backward, memory);
  finish_reduce(m);

  end_whole_gradients(m);
}

// Parameters that are whole on every rank: the buckets of DdpGradients, or what LocalGradients has.
void Schedule::end_whole_gradients(int m) {
  const std::int64_t whole = kFloat * shape_.whole;
  const int group = whole_group();
  if (group == 1) {
    push(MemoryKind::unsharded_grad, MemoryKind::unsharded_grad, whole, m);
  } else {
    push(MemoryKind::unsharded_grad, MemoryKind::unsharded_grad, whole, m % group);
    if ((m + 1) % group == 0) {
      fold(MemoryKind::unsharded_grad, whole, group);
      push(MemoryKind::unsharded_grad, MemoryKind::unsharded_grad, whole, m / group);
    }
  }
  if (m + 1 < options_.micro_steps && has_buckets()) {
    ledger_.hold(MemoryKind::unsharded_grad, whole);
  }
}

void Schedule::pre_backward(Unit* unit) {
  if (unit == nullptr) return;
  finish_unshard(*unit);
  start_ahead(backward_order_, *unit);
  for (const FlatShape& flat : unit->shape.flats) {
    ledger_.hold(MemoryKind::unsharded_grad, kFloat * flat.padded());
  }
}

void Schedule::post_backward(Unit* unit, int m) {
  if (unit == nullptr) return;
  reshard(*unit);
  finish_reduce(m);
  start_reduce(*unit, m);
}

void Schedule::start_reduce(Unit& unit, int m) {
  const int group = options_.micro_steps_per_reduction;
  const bool reduces = (m + 1) % group == 0;
  for (const FlatShape& flat : unit.shape.flats) {
    if (group > 1) {
      push(MemoryKind::unsharded_grad, MemoryKind::unsharded_grad, kFloat * flat.padded(),
           m % group);
      if (reduces) fold(MemoryKind::unsharded_grad, kFloat * flat.padded(), group);
    }
    if (reduces) ledger_.hold(MemoryKind::reduce_scatter, kFloat * flat.shard());
  }
  if (reduces) reducing_ = &unit;
}

void Schedule::finish_reduce(int m) {
  if (reducing_ == nullptr) return;
  for (const FlatShape& flat : reducing_->shape.flats) {
    ledger_.drop(MemoryKind::unsharded_grad, kFloat * flat.padded());
    push(MemoryKind::reduce_scatter, MemoryKind::sharded_grad, kFloat * flat.shard(),
         m / options_.micro_steps_per_reduction);
  }
  reducing_ = nullptr;
}

// ------------------------------------------------------------------------------------ the step

Breakdown Schedule::finish_step() {
  ledger_.reset_peak();
  const int reductions = options_.micro_steps / options_.micro_steps_per_reduction;
  std::int64_t shards = 0;
  for (const Unit& unit : units_) {
    for (const FlatShape& flat : unit.shape.flats) {
      fold(MemoryKind::sharded_grad, kFloat * flat.shard(), reductions);
      shards += kFloat * flat.shard();
    }
  }
  const std::int64_t whole = kFloat * shape_.whole;
  fold(MemoryKind::unsharded_grad, whole, options_.micro_steps / whole_group());
  if (options_.clips) {
    constexpr std::int64_t kCounters = 8 * ExactSquareSum::kCounters;
    ledger_.hold(MemoryKind::temp, kCounters);
    ledger_.drop(MemoryKind::temp, kCounters);
  }
  if (!std::exchange(has_state_, true)) {
    ledger_.hold(MemoryKind::optimizer, options_.optimizer_states * (shards + whole));
  }
  ledger_.drop(MemoryKind::sharded_grad, shards);
  ledger_.drop(MemoryKind::unsharded_grad, whole);
  return ledger_.peak();
}

// -------------------------------------------------------------------------- parameters of a unit

void Schedule::start_unshard(Unit& unit) {
  if (unit.state != State::sharded) return;
  for (const FlatShape& flat : unit.shape.flats) {
    ledger_.hold(MemoryKind::unsharded_param, kFloat * flat.padded());
  }
  unit.state = State::in_flight;
}

void Schedule::finish_unshard(Unit& unit) {
  start_unshard(unit);
  unit.state = State::unsharded;
  if (!std::exchange(unit.has_part, false)) return;
  for (const FlatShape& flat : unit.shape.flats) {
    ledger_.drop(MemoryKind::unsharded_param, part_of(flat));
  }
}

void Schedule::reshard(Unit& unit) {
  for (const FlatShape& flat : unit.shape.flats) {
    ledger_.drop(MemoryKind::unsharded_param, kFloat * flat.padded());
  }
  unit.state = State::sharded;
}

/// Up to d units of `order` that come after `after` (which need not be in it).
void Schedule::start_ahead(const std::vector<Unit*>& order, const Unit& after) {
  const int depth = options_.prefetch_depth;
  const int limit = options_.in_flight_limit == 0 ? depth : options_.in_flight_limit;
  const auto found = std::find(order.begin(), order.end(), &after);
  auto next = found == order.end() ? order.begin() : found + 1;
  for (int ahead = 0; ahead < depth && next != order.end(); ++ahead, ++next) {
    const auto in_flight = std::count_if(units_.begin(), units_.end(), [](const Unit& unit) {
      return unit.state == State::in_flight;
    });
    if ((*next)->state == State::sharded && in_flight >= limit) return;
    start_unshard(**next);
  }
}

std::int64_t Schedule::part_of(const FlatShape& flat) const {
  return kFloat * (flat.padded() / options_.reshard_group);
}

// ------------------------------------------------------------------------------------ bookkeeping

// A binary counter: pushing leaf number m leaves pop(m + 1) sums where pop(m) were. Nothing is
// allocated for it, so it makes no peak.
void Schedule::push(MemoryKind from, MemoryKind to, std::int64_t nbytes, int leaf) {
  ledger_.drop(from, nbytes);
  ledger_.hold(to, nbytes * (ones(leaf + 1) - ones(leaf)));
}

void Schedule::fold(MemoryKind kind, std::int64_t nbytes, int leaves) {
  ledger_.drop(kind, nbytes * (ones(leaves) - 1));
}

// The kept bytes of other segments are in the ledger already, as is this segment's input.
void Schedule::walk(const std::vector<MemoryPoint>& points) {
  for (std::size_t i = 1; i < points.size(); ++i) {
    const MemoryPoint& from = points[i - 1];
    const MemoryPoint& to = points[i];
    const std::int64_t activation = to.activation - from.activation;
    const std::int64_t temp = to.temp - from.temp;
    if (activation < 0) ledger_.drop(MemoryKind::activation, -activation);
    if (temp < 0) ledger_.drop(MemoryKind::temp, -temp);
    if (activation > 0) ledger_.hold(MemoryKind::activation, activation);
    if (temp > 0) ledger_.hold(MemoryKind::temp, temp);
    if (!has_buckets()) {
      ledger_.hold(MemoryKind::unsharded_grad, to.weight_grad - from.weight_grad);
    }
  }
}

void Schedule::snap(const std::string& module, CallState state, MicroStepMemory& memory) const {
  memory.snapshots.push_back({module, state, ledger_.now()});
}

// A single process sums micro-batches one by one, whatever L is.
int Schedule::whole_group() const { return has_buckets() ? options_.micro_steps_per_reduction : 1; }

Schedule::Unit* Schedule::unit_at(int index) {
  return index == ModelShape::kNoUnit ? nullptr : &units_[static_cast<std::size_t>(index)];
}

}  // namespace fsdp::estimate
