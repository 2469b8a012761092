#include "race/plan_walk.h"

#include "paper/books.h"
#include "paper/step_walk.h"
#include "race/plan_text.h"

#include <algorithm>
#include <limits>
#include <memory>

namespace fsdp::race {

using paper::AfterForward;

PlanSchedule::PlanSchedule(const Plan& plan, const paper::ModelShape& shape)
    : gathers_(shape.units.size()) {
  std::map<std::string, int> places;
  for (const paper::UnitShape& unit : shape.units) {
    places.emplace(unit.name, static_cast<int>(places.size()));
  }
  for (const Unit& unit : plan.units) {
    if (unit.module != kRoot) {
      rules_[unit.module] = unit.keep        ? AfterForward::keep
                            : unit.keep_part ? AfterForward::keep_part
                                             : AfterForward::free;
    }
    auto& [forward, backward] = gathers_.at(static_cast<std::size_t>(places.at(unit.module)));
    for (const std::string& name : unit.before_forward) forward.push_back(places.at(name));
    for (const std::string& name : unit.before_backward) backward.push_back(places.at(name));
  }
}

AfterForward PlanSchedule::after_forward(const paper::UnitShape& unit) const {
  const auto found = rules_.find(unit.name);
  return found == rules_.end() ? AfterForward::keep : found->second;
}

paper::UnitPlaces PlanSchedule::gathers_now(int unit, bool is_backward,
                                            paper::UnitPlaces /*next*/) const {
  return gathers_[static_cast<std::size_t>(unit)][is_backward ? 1 : 0];
}

int PlanSchedule::gathers_in_flight() const { return std::numeric_limits<int>::max(); }

namespace {

paper::MemoryOptions with_blocks_again(paper::MemoryOptions options) {
  options.recipe.checkpointing = optim::Checkpointing::inside;
  return options;
}

/// The first step differs: it makes the optimizer's state.
Estimate second_step(paper::StepWalk& walk, paper::Books& books) {
  walk.set_recording(false);
  walk.next_step();
  books.take_time();
  const std::int64_t peak = walk.next_step().peak().total();
  return {.step_ps = books.take_time().total(), .peak_bytes = peak};
}

}  // namespace

PaperTrack::PaperTrack(const Track& track)
    : track_(track),
      options_(with_blocks_again(track.options())),
      kernels_(paper::kernel_times(track.model, options_, track.machine)),
      tape_(paper::taped_model(track.model, track.options())),
      again_(paper::taped_model(track.model, options_)) {
  const paper::ModelShape shape = paper::model_shape(track.model, options_);
  const paper::Formats formats(options_.recipe.precision);
  for (std::size_t i = 0; i < shape.segments.size(); ++i) {
    if (shape.unit_of_segment[i] == paper::ModelShape::kNoUnit) continue;  // tied: in the root
    const bool is_block = i > 0 && i + 1 < shape.segments.size();
    const paper::SegmentTimes& times = i == 0     ? kernels_.embedding
                                       : is_block ? kernels_.block
                                                  : kernels_.head;
    Module module{.name = shape.segments[i],
                  .forward_ps = times.forward,
                  .backward_ps = times.backward,
                  .saved_bytes = tape_.segments[i]->kept(),
                  .saved_if_again = again_.segments[i]->kept(),
                  .is_block = is_block};
    for (const auto& flat : shape.units[static_cast<std::size_t>(shape.unit_of_segment[i])].flats) {
      module.full_bytes += formats.param * flat.padded();
      module.gather_ps += channel_ps(CollectiveOp::all_gather, flat.shard(), formats.param);
      module.reduce_ps += channel_ps(CollectiveOp::reduce_scatter, flat.shard(), formats.sum);
    }
    modules_.push_back(std::move(module));
  }
}

std::int64_t PaperTrack::channel_ps(CollectiveOp op, std::int64_t numel,
                                    std::int64_t element) const {
  paper::Books books(options_);
  books.open_clock(track_.machine, kernels_);
  return books.start(&paper::WireBytes::gathers, op, numel, element,
                     books.group_of(0, track_.ranks, 1));
}

Estimate PaperTrack::estimate(const Plan& plan) const {
  check_plan(plan, modules_, track_.ranks);
  std::vector<std::string> units;
  for (const Unit& each : plan.units) units.push_back(each.module);
  paper::ModelShape shape = paper::model_shape(track_.model, options_, &units);
  paper::TapedModel tape = tape_;
  for (std::size_t i = 0; i < shape.segments.size(); ++i) {
    const auto unit = std::ranges::find(plan.units, shape.segments[i], &Unit::module);
    if (unit != plan.units.end() && unit->checkpoint) tape.segments[i] = again_.segments[i];
  }
  auto schedule = std::make_unique<PlanSchedule>(plan, shape);
  paper::MemoryOptions options = options_;
  options.recipe.sharding.reshard_after_forward = parts_of(plan, track_.ranks);
  paper::Books books(options);
  books.open_bytes();
  books.open_clock(track_.machine, kernels_);
  paper::StepWalk walk(std::move(shape), std::move(tape), options, books, std::move(schedule));
  return second_step(walk, books);
}

Estimate PaperTrack::plain_fsdp() const {
  const paper::MemoryOptions options = track_.options();
  paper::Books books(options);
  books.open_bytes();
  books.open_clock(track_.machine, kernels_);
  paper::StepWalk walk(track_.model, options, books);
  return second_step(walk, books);
}

Problem PaperTrack::problem() const {
  return {.modules = modules_,
          .ranks = track_.ranks,
          .machine = track_.machine,
          .memory_bytes = track_.memory_bytes,
          .estimate = [this](const Plan& plan) { return estimate(plan); }};
}

}  // namespace fsdp::race
