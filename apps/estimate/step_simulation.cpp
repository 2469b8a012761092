#include "estimate/step_simulation.h"

#include "device/thread_pool.h"
#include "tensor/exact_norm.h"

#include <utility>

namespace fsdp::estimate {

using nn::CallState;

StepSimulation::StepSimulation(ModelShape shape, ActivationTable table, MemoryOptions options)
    : shape_(std::move(shape)), table_(std::move(table)), options_(std::move(options)) {
  segments_.push_back(&table_.embedding);
  segments_.resize(shape_.segments.size() - 1, &table_.block);
  segments_.push_back(&table_.head);
  for (const UnitShape& unit : shape_.units) {
    units_.push_back({unit});
    for (const FlatShape& flat : unit.flats) {
      ledger_.hold(MemoryKind::sharded_param, kFloatBytes * flat.shard());
    }
  }
  ledger_.hold(MemoryKind::unsharded_param, kFloatBytes * shape_.whole);
  ledger_.hold(MemoryKind::buffer, shape_.buffers);
  ledger_.hold(MemoryKind::temp,
               options_.threads * static_cast<std::int64_t>(ThreadPool::kScratchBytes));
}

StepMemory StepSimulation::next_step() {
  StepMemory memory;
  for (int m = 0; m < options_.micro_steps; ++m) memory.micro_steps.push_back(micro_step(m));
  memory.step_peak = finish_step();
  memory.at_rest = ledger_.now();
  return memory;
}

MicroStepMemory StepSimulation::micro_step(int m) {
  MicroStepMemory memory;
  if (m == 0 && has_buckets()) ledger_.hold(MemoryKind::unsharded_grad, kFloatBytes * shape_.whole);
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

void StepSimulation::forward(MicroStepMemory& memory) {
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

  if (!forward_order_.units.empty()) return;
  for (Unit& unit : units_) forward_order_.add(unit);  // from here on it is known
  for (auto each = units_.rbegin(); each != units_.rend(); ++each) {
    if (!each->shape.keep) backward_order_.add(*each);
  }
}

// ------------------------------------------------------------------------------------ backward

void StepSimulation::backward(int m, MicroStepMemory& memory) {
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
void StepSimulation::end_whole_gradients(int m) {
  const std::int64_t whole = kFloatBytes * shape_.whole;
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

// ------------------------------------------------------------------------------------ the step

Breakdown StepSimulation::finish_step() {
  ledger_.reset_peak();
  const int reductions = options_.micro_steps / options_.micro_steps_per_reduction;
  std::int64_t shards = 0;
  for (const Unit& unit : units_) {
    for (const FlatShape& flat : unit.shape.flats) {
      fold(MemoryKind::sharded_grad, kFloatBytes * flat.shard(), reductions);
      shards += kFloatBytes * flat.shard();
    }
  }
  const std::int64_t whole = kFloatBytes * shape_.whole;
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

// ------------------------------------------------------------------------------------ bookkeeping

// The kept bytes of other segments are in the ledger already, as is this segment's input.
void StepSimulation::walk(const std::vector<MemoryPoint>& points) {
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

void StepSimulation::snap(const std::string& module, CallState state,
                          MicroStepMemory& memory) const {
  memory.snapshots.push_back({module, state, ledger_.now()});
}

// A single process sums micro-batches one by one, whatever L is.
int StepSimulation::whole_group() const {
  return has_buckets() ? options_.micro_steps_per_reduction : 1;
}

StepSimulation::Unit* StepSimulation::unit_at(int index) {
  return index == ModelShape::kNoUnit ? nullptr : &units_[static_cast<std::size_t>(index)];
}

}  // namespace fsdp::estimate
