#include "paper/step_walk.h"

#include "base/check.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace fsdp::paper {

using nn::CallState;

namespace {

const MemoryOptions& checked(const nn::TransformerConfig& config, const MemoryOptions& options) {
  check_options(config, options);
  return options;
}

std::unique_ptr<Schedule> schedule_of(const MemoryOptions& options) {
  if (options.framework == Framework::unshard) {
    return std::make_unique<RecipeSchedule>(options.recipe);
  }
  return std::make_unique<TorchSchedule>(options.recipe);
}

}  // namespace

StepWalk::StepWalk(const nn::TransformerConfig& config, const MemoryOptions& options, Books& books)
    : StepWalk(model_shape(config, checked(config, options)), taped_model(config, options), options,
               books) {}

StepWalk::StepWalk(ModelShape shape, TapedModel tape, MemoryOptions options, Books& books,
                   std::unique_ptr<Schedule> schedule)
    : options_(std::move(options)),
      books_(books),
      schedule_(schedule != nullptr ? std::move(schedule) : schedule_of(options_)),
      formats_(recipe_.precision),
      shape_(std::move(shape)),
      tape_(std::move(tape)),
      whole_(parts_walk(shape_, segments_, options_, *schedule_, books_)) {
  const int ranks = recipe_.shards(), rank = options_.rank;
  shard_group_ = books_.group_of(rank / ranks * ranks, ranks, 1);
  replica_group_ = books_.group_of(rank % ranks, recipe_.replicas, ranks);
  if (recipe_.sharding.reshard_after_forward.is_within()) {
    const int size = recipe_.sharding.reshard_after_forward.ranks;
    subgroup_ = books_.group_of(rank / size * size, size, 1);
  }
  make_segment_walks();
  find_alike_blocks();
  for (const WholePart& part : shape_.whole_parts) {
    const std::vector<Completion>& all = times_of(part.segment).completions;
    FSDP_CHECK(!books_.has_clock() ||
                   std::ranges::find(all, part.operation, &Completion::operation) != all.end(),
               "segment {}: nothing says when the gradient of {} is complete",
               shape_.segments[part.segment], part.operation);
  }
  for (const UnitShape& unit : shape_.units) {
    units_.emplace_back(unit);
    books_.set_owner(unit.name);
    for (const FlatShape& flat : unit.flats) {
      books_.hold(MemoryKind::sharded_param, shard_of(flat), shards());
    }
  }
  whole_->hold_parameters();
  books_.set_owner("");
  books_.hold(MemoryKind::buffer, shape_.buffers);
  if (!has_buffers_) {
    books_.hold(MemoryKind::temp, options_.threads * static_cast<std::int64_t>(kScratchBytes));
  }
}

// Segments that are alike are one object, and have one walk.
void StepWalk::make_segment_walks() {
  // Whole gradients are made in buckets, not one by one.
  counts_gradients_ = !has_buffers_ &&
                      (recipe_.strategy == Strategy::single || recipe_.strategy == Strategy::zero2);
  const auto walk_of = [&](const SegmentMemory& segment) {
    return segment_walk(segment, counts_gradients_, /*by_operation=*/!whole_->is_empty(),
                        whole_->follows_forward());
  };
  for (const auto& segment : segments_) {
    auto found = distinct_walks_.find(segment.get());
    if (found == distinct_walks_.end()) {
      found = distinct_walks_.emplace(segment.get(), walk_of(*segment)).first;
    }
    walks_.push_back(&found->second);
  }
  loss_ = walk_of(tape_.loss);
}

// ------------------------------------------------------------------------------------ micro-steps

StepMemory StepWalk::next_step() {
  StepMemory memory;
  if (books_.has_bytes()) known_.clear();  // each step has its own peaks
  if (has_state_) whole_->refresh_copies();
  for (int m = 0; m < recipe_.micro_steps; ++m) micro_step_unless_known(m, memory);
  books_.reported().reset_peak();
  finish_step();
  memory.step_peak = books_.reported().peak();
  memory.at_rest = books_.reported().now();
  return memory;
}

// For the bytes: nothing travels when the first begins, and after the last no gradients are made
// ready for another. For the clock: a mesh and copies to the host leave something under way.
bool StepWalk::may_be_known(int m) const {
  if (records_ || (!units_.empty() && forward_order_.empty())) return false;
  if (books_.has_bytes()) {
    if (m < 2 || m + 1 >= recipe_.micro_steps || recipe_.micro_steps_per_reduction > 1) {
      return false;
    }
  }
  return !books_.has_clock() || (recipe_.replicas == 1 && !recipe_.sharding.offload.grads);
}

StepWalk::Likeness StepWalk::likeness(int m) const {
  const int group = recipe_.micro_steps_per_reduction;
  Likeness like{};
  if (books_.has_bytes()) {
    like = {held_sums(m - 2), held_sums(m - 1), held_sums(m), held_sums(m + 1)};
  }
  if (books_.has_clock()) {
    like[4] = additions_of_push(m / group);
    like[5] = additions_of_push(m % group);
  }
  like[6] = schedule_->reduces(m) ? 1 : 0;
  return like;
}

void StepWalk::micro_step_unless_known(int m, StepMemory& memory) {
  if (!may_be_known(m)) return micro_step(m, memory);
  const Likeness like = likeness(m);
  if (const auto found = known_.find(like); found != known_.end()) {
    const Known& known = found->second;
    books_.repeat(known.change);
    across_.leaf = m - known.m + known.leaf_across;
    copied_.leaf = m - known.m + known.leaf_copied;
    return;
  }
  const Books::Change before = books_.now();
  micro_step(m, memory);
  known_[like] = {m, across_.leaf, copied_.leaf, books_.change_since(before)};
}

void StepWalk::micro_step(int m, StepMemory& step) {
  MicroStepMemory memory;
  Ledger& reported = books_.reported();
  if (m == 0) whole_->hold_buckets();
  whole_->begin_micro_step();
  books_.set_owner("");
  if (m == 0) begin_phase("inputs");
  books_.hold(MemoryKind::activation, tape_.data);
  reported.reset_peak();
  begin_phase("forward", m);
  is_forward_ = true;
  forward(memory);
  is_forward_ = false;
  memory.forward_peak = reported.peak();
  reported.reset_peak();
  begin_phase("backward", m);
  backward(m, memory);
  if (m + 1 < recipe_.micro_steps) whole_->hold_buckets();
  memory.backward_peak = reported.peak();
  books_.set_owner("");
  books_.drop(MemoryKind::activation, tape_.data + tape_.loss_value);
  step.micro_steps.push_back(std::move(memory));
}

// From the second forward on, units are gathered ahead.
Breakdown StepWalk::evaluation_peak() {
  has_tape_ = false;
  books_.hold(MemoryKind::activation, tape_.data);
  books_.reported().reset_peak();
  for (int i = 0; i < 2; ++i) {
    MicroStepMemory unused;
    forward(unused);
    books_.drop(MemoryKind::activation, tape_.loss.kept() + tape_.loss_value);
  }
  return books_.reported().peak();
}

// ----------------------------------------------------------------------------------------- forward

void StepWalk::forward(MicroStepMemory& memory) {
  Unit* root = unit_at(shape_.root);
  snap("root", CallState::before_pre_forward, memory);
  pre_forward(root);
  snap("root", CallState::after_pre_forward, memory);
  Passed passed;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    forward_segment(i, memory);
    i += pass_over(i, 1, passed);
  }
  snap("root", CallState::before_post_forward, memory);
  post_forward(root, has_tape_);
  drop_lingering();
  snap("root", CallState::after_post_forward, memory);
  walk_forward(segments_.size(), tape_.loss.forward, loss_.forward, /*is_backward=*/false,
               books_.times_of_loss().forward_at);
  books_.compute_for(TimePart::forward, books_.times_of_loss().forward, name_of(segments_.size()));

  if (!forward_order_.empty()) return;
  for (Unit& unit : units_) {  // from here on it is known
    forward_order_.push_back(place_of(unit));
    unit.forward_next = forward_order_.size();
  }
  const auto add_backward = [&](Unit& unit) {
    if (unit.shape.keep && !schedule_->orders_kept_units()) return;
    backward_order_.push_back(place_of(unit));
    unit.backward_next = backward_order_.size();
  };
  if (root != nullptr && has_buffers_) add_backward(*root);  // whose forward has ended last
  for (auto each = units_.rbegin(); each != units_.rend(); ++each) {
    if (&*each != root || !has_buffers_) add_backward(*each);
  }
}

void StepWalk::forward_segment(std::size_t segment, MicroStepMemory& memory) {
  ++segments_walked_;
  Unit* unit = unit_of(segment);
  const std::string& name = shape_.segments[segment];
  snap(name, CallState::before_pre_forward, memory);
  pre_forward(unit);
  snap(name, CallState::after_pre_forward, memory);
  walk_forward(segment, segments_[segment]->forward, walks_[segment]->forward,
               /*is_backward=*/false, times_of(segment).forward_at);
  books_.compute_for(TimePart::forward, times_of(segment).forward, name);
  if (!has_tape_) books_.drop(MemoryKind::activation, segments_[segment]->kept());
  snap(name, CallState::before_post_forward, memory);
  post_forward(unit, has_tape_ && !is_around(segment));
  snap(name, CallState::after_post_forward, memory);
  books_.set_owner("");
  books_.drop(MemoryKind::activation, segments_[segment]->dropped);
}

// ---------------------------------------------------------------------------------------- backward

void StepWalk::backward(int m, MicroStepMemory& memory) {
  for (const SegmentWalk::Section& each : loss_.backward) {
    walk_section(segments_.size(), tape_.loss.backward, each, /*is_backward=*/true,
                 books_.times_of_loss().backward_at, /*done=*/0);
  }
  books_.compute_for(TimePart::backward, books_.times_of_loss().backward,
                     name_of(segments_.size()));
  Unit* root = unit_at(shape_.root);
  snap("root", CallState::before_pre_backward, memory);
  pre_backward(root);
  snap("root", CallState::after_pre_backward, memory);
  Passed passed;
  for (std::size_t i = segments_.size(); i-- > 0;) {
    if (segments_[i]->backward.empty()) break;  // nothing below is trained
    backward_segment(i, m, memory);
    i -= pass_over(i, -1, passed);
  }
  snap("root", CallState::before_post_backward, memory);
  post_backward(root, m);
  snap("root", CallState::after_post_backward, memory);
  finish_reduce();
  for (Unit& unit : units_) {  // those that backward never reached
    drop_part(unit);
    if (unit.state != State::sharded) reshard(unit);
  }
  whole_->end_micro_step(m);
}

void StepWalk::backward_segment(std::size_t segment, int m, MicroStepMemory& memory) {
  ++segments_walked_;
  Unit* unit = unit_of(segment);
  const std::string& name = shape_.segments[segment];
  const bool is_inside = segments_[segment]->is_checkpointed && !is_around(segment);
  if (is_around(segment)) forward_again(segment, memory);
  snap(name, CallState::before_pre_backward, memory);
  pre_backward(unit);
  snap(name, CallState::after_pre_backward, memory);
  if (is_inside) {
    walk_forward(segment, segments_[segment]->again, walks_[segment]->again, /*is_backward=*/true,
                 times_of(segment).again_at);
    books_.compute_for(TimePart::recomputation, times_of(segment).again, name);
  }
  compute_backward(segment, m);
  snap(name, CallState::before_post_backward, memory);
  post_backward(unit, m);
  snap(name, CallState::after_post_backward, memory);
}

// The second forward of a unit that is checkpointed from outside, which is in nobody's way: the
// units ahead are those of backward.
void StepWalk::forward_again(std::size_t segment, MicroStepMemory& memory) {
  Unit* unit = unit_of(segment);
  const std::string& name = shape_.segments[segment];
  snap(name, CallState::before_pre_forward, memory);
  if (unit != nullptr) {
    finish_unshard(*unit);
    start_ahead(*unit, /*is_backward=*/true);
  }
  snap(name, CallState::after_pre_forward, memory);
  walk_section(segment, segments_[segment]->again, walks_[segment]->again_body,
               /*is_backward=*/false, times_of(segment).again_at, /*done=*/0);
  books_.compute_for(TimePart::recomputation, times_of(segment).again, name);
  snap(name, CallState::before_post_forward, memory);
  post_forward(unit, /*has_tape=*/true);
  snap(name, CallState::after_post_forward, memory);
  walk_section(segment, segments_[segment]->again, walks_[segment]->again_end,
               /*is_backward=*/false, {}, /*done=*/0);
}

void StepWalk::compute_backward(std::size_t segment, int m) {
  const SegmentTimes& times = times_of(segment);
  const bool has_parts = !whole_->is_empty();
  std::int64_t done = 0;
  std::size_t place = 0;
  auto next = times.completions.begin();
  for (const SegmentWalk::Section& section : walks_[segment]->backward) {
    if (has_parts) whole_->before(segment, section.name);
    walk_section(segment, segments_[segment]->backward, section, /*is_backward=*/true,
                 times.backward_at, done);
    if (!has_parts) continue;
    const auto found = std::find_if(next, times.completions.end(), [&](const Completion& each) {
      return each.operation == section.name;
    });
    if (found != times.completions.end()) {
      books_.compute_for(TimePart::backward, found->at - std::exchange(done, found->at),
                         name_of(segment));
      next = found + 1;
    }
    whole_->complete(segment, place++, section.name, m);
    whole_->after(segment, section.name);
  }
  books_.compute_for(TimePart::backward, times.backward - done, name_of(segment));
}

// ------------------------------------------------------------------------------------- bookkeeping

std::int64_t StepWalk::valid(const FlatShape& flat) const {
  const int place = options_.rank % recipe_.shards();
  return std::clamp(flat.numel - place * flat.shard(), std::int64_t{0}, flat.shard());
}

StepWalk::Unit* StepWalk::unit_at(int index) {
  return index == ModelShape::kNoUnit ? nullptr : &units_[static_cast<std::size_t>(index)];
}

}  // namespace fsdp::paper
