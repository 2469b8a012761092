#include "estimate/step_simulation.h"

#include "device/thread_pool.h"
#include "tensor/exact_norm.h"

#include <utility>

namespace fsdp::estimate {

using nn::CallState;

StepSimulation::StepSimulation(ModelShape shape, Segments segments, ActivationTable table,
                               MemoryOptions options, MemorySpace space)
    : shape_(std::move(shape)),
      table_(std::move(table)),
      options_(std::move(options)),
      formats_(options_.mixed_precision),
      segments_(std::move(segments)),
      reported_(space == MemorySpace::host ? host_ : ledger_),
      whole_(shape_.whole_parts, options_, ledger_) {
  for (const UnitShape& unit : shape_.units) {
    units_.push_back({unit});
    for (const FlatShape& flat : unit.flats) {
      shards().hold(MemoryKind::sharded_param, shard_of(flat));
    }
  }
  const std::int64_t copies = formats_.casts_params ? formats_.param : 0;
  ledger_.hold(MemoryKind::unsharded_param, (kFloatBytes + copies) * shape_.whole +
                                                formats_.param * shape_.whole_without_master);
  ledger_.hold(MemoryKind::buffer, shape_.buffers);
  ledger_.hold(MemoryKind::temp,
               options_.threads * static_cast<std::int64_t>(ThreadPool::kScratchBytes));
}

StepMemory StepSimulation::next_step() {
  StepMemory memory;
  std::map<SumsAround, Change> known;
  for (int m = 0; m < options_.micro_steps; ++m) walk_unless_known(m, memory, known);
  memory.step_peak = finish_step();
  memory.at_rest = reported_.now();
  return memory;
}

// Nothing travels when the first begins, and after the last, no gradients are made ready for
// another. What each rank owns is not in the ledger.
bool StepSimulation::may_be_known(int m) const {
  const bool owns_sums = ledger_.ranks() != nullptr && options_.placement == Placement::zero2;
  return !records_ && m > 1 && m + 1 < options_.micro_steps &&
         options_.micro_steps_per_reduction == 1 && !owns_sums;
}

void StepSimulation::walk_unless_known(int m, StepMemory& memory,
                                       std::map<SumsAround, Change>& known) {
  if (!may_be_known(m)) return memory.micro_steps.push_back(micro_step(m));
  const SumsAround sums{held_sums(m - 2), held_sums(m - 1), held_sums(m), held_sums(m + 1)};
  if (const auto found = known.find(sums); found != known.end()) {
    const Change& change = found->second;
    ledger_.repeat(change.device);
    host_.repeat(change.host);
    leaf_across_ = m - change.m + change.leaf_across;
    leaf_copied_ = m - change.m + change.leaf_copied;
    return;
  }
  const Breakdown device = ledger_.now();
  const Breakdown host = host_.now();
  memory.micro_steps.push_back(micro_step(m));
  known[sums] = {m, leaf_across_, leaf_copied_, ledger_.change_since(device),
                 host_.change_since(host)};
}

MicroStepMemory StepSimulation::micro_step(int m) {
  MicroStepMemory memory;
  if (m == 0) whole_.begin_micro_step();
  ledger_.hold(MemoryKind::activation, table_.data);
  reported_.reset_peak();
  forward(memory);
  memory.forward_peak = reported_.peak();
  reported_.reset_peak();
  backward(m, memory);
  memory.backward_peak = reported_.peak();
  ledger_.drop(MemoryKind::activation, table_.data + table_.loss_value);
  return memory;
}

// From the second forward on, units are gathered ahead.
Breakdown StepSimulation::evaluation_peak() {
  has_tape_ = false;
  ledger_.hold(MemoryKind::activation, table_.data);
  ledger_.reset_peak();
  for (int i = 0; i < 2; ++i) {
    MicroStepMemory unused;
    forward(unused);
    ledger_.drop(MemoryKind::activation, table_.loss.kept() + table_.loss_value);
  }
  return ledger_.peak();
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
    if (!has_tape_) ledger_.drop(MemoryKind::activation, segments_[i]->kept());
    snap(name, CallState::before_post_forward, memory);
    post_forward(unit, has_tape_ && !is_around(*segments_[i]));
    snap(name, CallState::after_post_forward, memory);
    ledger_.drop(MemoryKind::activation, segments_[i]->dropped);
  }
  snap("root", CallState::before_post_forward, memory);
  post_forward(root, has_tape_);
  snap("root", CallState::after_post_forward, memory);
  walk(table_.loss.forward);

  if (!forward_order_.empty()) return;
  for (Unit& unit : units_) {  // from here on it is known
    forward_order_.push_back(&unit);
    unit.forward_next = forward_order_.size();
  }
  for (auto each = units_.rbegin(); each != units_.rend(); ++each) {
    if (each->shape.keep) continue;
    backward_order_.push_back(&*each);
    each->backward_next = backward_order_.size();
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
    if (segments_[i]->backward.empty()) break;  // nothing below is trained
    Unit* unit = unit_at(shape_.unit_of_segment[i]);
    const std::string& name = shape_.segments[i];
    if (is_around(*segments_[i])) forward_again(i, memory);
    snap(name, CallState::before_pre_backward, memory);
    pre_backward(unit);
    snap(name, CallState::after_pre_backward, memory);
    if (!is_around(*segments_[i])) walk(segments_[i]->again);
    walk_backward(i, m);
    snap(name, CallState::before_post_backward, memory);
    post_backward(unit, m);
    snap(name, CallState::after_post_backward, memory);
  }
  snap("root", CallState::before_post_backward, memory);
  post_backward(root, m);
  snap("root", CallState::after_post_backward, memory);
  finish_reduce(m);
  for (Unit& unit : units_) {  // those that backward never reached
    drop_part(unit);
    if (unit.state != State::sharded) reshard(unit);
  }
  whole_.end_micro_step(m);
}

// The second forward of a unit that is checkpointed from outside, which is in nobody's way: the
// units ahead are those of backward.
void StepSimulation::forward_again(std::size_t segment, MicroStepMemory& memory) {
  const std::vector<MemoryPoint>& again = segments_[segment]->again;
  Unit* unit = unit_at(shape_.unit_of_segment[segment]);
  const std::string& name = shape_.segments[segment];
  snap(name, CallState::before_pre_forward, memory);
  if (unit != nullptr) {
    finish_unshard(*unit);
    start_ahead(backward_order_, unit->backward_next);
  }
  snap(name, CallState::after_pre_forward, memory);
  walk({again.begin(), again.end() - 1});
  snap(name, CallState::before_post_forward, memory);
  post_forward(unit, /*has_tape=*/true);
  snap(name, CallState::after_post_forward, memory);
  advance(again[again.size() - 2], again.back());
}

// ------------------------------------------------------------------------------------ the step

Breakdown StepSimulation::finish_step() {
  reported_.reset_peak();
  finish_across();
  finish_copies();
  const int reductions = options_.micro_steps / options_.micro_steps_per_reduction;
  std::int64_t gradients = 0;
  for (const Unit& unit : units_) {
    for (const FlatShape& flat : unit.shape.flats) {
      if (!flat.is_trained) continue;
      const std::int64_t sum = formats_.sum * flat.shard();
      fold_leaves(sums(), MemoryKind::sharded_grad, sum, reductions);
      if (&sums() != &shards()) {  // copied to the host
        shards().hold(MemoryKind::sharded_grad, sum);
        sums().drop(MemoryKind::sharded_grad, sum);
      }
      if (formats_.widens_sums) {
        shards().hold(MemoryKind::sharded_grad, kFloatBytes * flat.shard());
        shards().drop(MemoryKind::sharded_grad, sum);
      }
      gradients += kFloatBytes * flat.shard();
    }
  }
  whole_.finish();
  if (options_.clips) {
    constexpr std::int64_t kCounters = 8 * ExactSquareSum::kCounters;
    ledger_.hold(MemoryKind::temp, kCounters);
    ledger_.drop(MemoryKind::temp, kCounters);
  }
  if (!std::exchange(has_state_, true)) {
    shards().hold(MemoryKind::optimizer, options_.optimizer_states * gradients);
    whole_.make_state(options_.optimizer_states);
  }
  whole_.broadcast();
  shards().drop(MemoryKind::sharded_grad, gradients);
  whole_.zero();
  return reported_.peak();
}

// ------------------------------------------------------------------------------------ bookkeeping

// The kept bytes of other segments are in the ledger already, as is this segment's input.
void StepSimulation::walk(const std::vector<MemoryPoint>& points) {
  for (std::size_t i = 1; i < points.size(); ++i) advance(points[i - 1], points[i]);
}

void StepSimulation::advance(const MemoryPoint& from, const MemoryPoint& to) {
  const std::int64_t activation = to.activation - from.activation;
  const std::int64_t temp = to.temp - from.temp;
  if (activation < 0) ledger_.drop(MemoryKind::activation, -activation);
  if (temp < 0) ledger_.drop(MemoryKind::temp, -temp);
  if (activation > 0) ledger_.hold(MemoryKind::activation, activation);
  if (temp > 0) ledger_.hold(MemoryKind::temp, temp);
  if (!has_buckets()) ledger_.hold(MemoryKind::unsharded_grad, to.weight_grad - from.weight_grad);
}

// A weight's hooks run when its operation has ended: after the last point that is named after it.
void StepSimulation::walk_backward(std::size_t segment, int m) {
  const std::vector<MemoryPoint>& points = segments_[segment]->backward;
  if (whole_.is_empty()) return walk(points);
  const auto operation_of = [](const MemoryPoint& point) {
    return std::string_view(point.after).substr(0, point.after.find(':'));
  };
  for (std::size_t i = 1; i < points.size(); ++i) {
    advance(points[i - 1], points[i]);
    const std::string_view operation = operation_of(points[i]);
    const bool is_last = i + 1 == points.size() || operation_of(points[i + 1]) != operation;
    if (is_last) whole_.complete(segment, operation, m);
  }
}

void StepSimulation::snap(const std::string& module, CallState state,
                          MicroStepMemory& memory) const {
  if (records_) memory.snapshots.push_back({module, state, reported_.now()});
}

StepSimulation::Unit* StepSimulation::unit_at(int index) {
  return index == ModelShape::kNoUnit ? nullptr : &units_[static_cast<std::size_t>(index)];
}

}  // namespace fsdp::estimate
