#include "estimate/iteration_table.h"

#include "base/check.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fsdp::estimate {
namespace {

using nn::CallState;

paper::StepMemory in_terms_of_formula(IterationMemory& iteration,
                                      std::vector<paper::MicroStepMemory> micro_steps) {
  paper::StepMemory step;
  step.micro_steps = std::move(micro_steps);
  for (const PhaseMemory& phase : iteration.phases) {
    const auto m = static_cast<std::size_t>(std::max(phase.micro_step, 0));
    if (phase.name == "forward") {
      step.micro_steps.at(m).forward_peak = phase.peak;
    } else if (phase.name == "backward") {
      step.micro_steps.at(m).backward_peak = phase.peak;
    } else if (phase.name != "inputs" && phase.peak.total() > step.step_peak.total()) {
      step.step_peak = phase.peak;
    }
  }
  step.at_rest = iteration.after;
  return step;
}

}  // namespace

std::string_view name_of_column(std::size_t column) {
  if (column == kPeakForward) return "PEAK_FW";
  if (column == kPeakBackward) return "PEAK_BW";
  return name_of(static_cast<CallState>(column));
}

const PhaseMemory& IterationMemory::highest_phase() const {
  FSDP_CHECK(!phases.empty(), "an iteration without phases has no peak");
  return *std::ranges::max_element(phases, {},
                                   [](const PhaseMemory& phase) { return phase.peak.total(); });
}

void IterationTable::begin_iteration(const Breakdown& now) {
  now_ = {};
  now_.before = now_.highest = now;
  frames_.clear();
}

void IterationTable::begin_phase(std::string name, int micro_step, const Breakdown& now) {
  if (name == "forward") now_.as_formula.micro_steps.emplace_back();
  now_.phases.push_back(
      {.name = std::move(name), .micro_step = micro_step, .peak = now, .module = {}});
  phase_total_ = now.total();
}

IterationMemory IterationTable::end_iteration(const Breakdown& peak, const Breakdown& now) {
  now_.peak = peak;
  now_.after = now;
  now_.as_formula = in_terms_of_formula(now_, std::move(now_.as_formula.micro_steps));
  FSDP_CHECK(now_.peak.total() == now_.highest_phase().peak.total(),
             "the tracker has a peak of {} bytes, but the phases of the iteration have one of {}; "
             "something allocates outside of all phases",
             now_.peak.total(), now_.highest_phase().peak.total());
  return std::move(now_);
}

std::size_t IterationTable::add_module(std::string name, bool is_unit) {
  now_.modules.push_back({.name = std::move(name), .is_unit = is_unit, .columns = {}});
  return now_.modules.size() - 1;
}

void IterationTable::close_frame(std::size_t module, std::size_t column) {
  const auto frame = std::find_if(frames_.rbegin(), frames_.rend(), [&](const Frame& each) {
    return each.module == module && each.column == column;
  });
  FSDP_CHECK(frame != frames_.rend(), "a call of {} ended that never began",
             now_.modules[module].name);
  ModuleMemory& memory = now_.modules[module];
  if (!memory.is_seen[column] || frame->total > memory.columns[column].total()) {
    memory.columns[column] = frame->peak;
  }
  memory.is_seen[column] = true;
  frames_.erase(std::next(frame).base());
}

void IterationTable::add_state(std::size_t module, CallState state, const Breakdown& now) {
  ModuleMemory& memory = now_.modules[module];
  const auto column = static_cast<std::size_t>(state);
  memory.columns[column] = now;
  memory.is_seen[column] = true;
  if (memory.is_unit && !now_.as_formula.micro_steps.empty()) {
    now_.as_formula.micro_steps.back().snapshots.push_back({memory.name, state, now});
  }
  const bool begins =
      state == CallState::before_pre_forward || state == CallState::before_pre_backward;
  const bool ends =
      state == CallState::after_post_forward || state == CallState::after_post_backward;
  const std::size_t peak = state < CallState::before_pre_backward ? kPeakForward : kPeakBackward;
  if (begins) {
    frames_.push_back({module, peak, now.total(), now});
  } else if (ends) {
    close_frame(module, peak);
  }
}

void IterationTable::add_growth(const Breakdown& now, std::int64_t total) {
  for (Frame& frame : frames_) {
    if (total <= frame.total) continue;
    frame.total = total;
    frame.peak = now;
  }
  for (std::size_t kind = 0; kind < now.nbytes.size(); ++kind) {
    now_.highest.nbytes[kind] = std::max(now_.highest.nbytes[kind], now.nbytes[kind]);
  }
  if (now_.phases.empty() || total <= phase_total_) return;
  phase_total_ = total;
  PhaseMemory& phase = now_.phases.back();
  phase.peak = now;
  phase.module = frames_.empty() ? "" : now_.modules[frames_.back().module].name;
  phase.is_backward = !frames_.empty() && frames_.back().column == kPeakBackward;
}

}  // namespace fsdp::estimate
