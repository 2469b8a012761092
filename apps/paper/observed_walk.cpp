// What an observer is told of a walk.
#include "paper/step_walk.h"

#include <algorithm>

namespace fsdp::paper {

using nn::CallState;

void Books::tell(MemorySpace space, MemoryKind kind, std::int64_t nbytes) {
  const std::int64_t now = clock_ ? clock_->now() + passed_ : 0;
  if (nbytes != 0) observer_->on_bytes({space, kind, nbytes, owner_, now});
}

void Books::tell(Span::Stream stream, TimePart part, std::string_view what, std::int64_t begin,
                 std::int64_t end) {
  if (end > begin) observer_->on_span({stream, part, what, begin, end});
}

void Books::relabel(MemoryKind from, MemoryKind to, std::int64_t nbytes) {
  if (has_bytes_) {
    device_.drop(from, nbytes);
    device_.hold(to, nbytes);
  }
  if (observer_ == nullptr || nbytes == 0) return;
  const std::int64_t now = clock_ ? clock_->now() : 0;
  observer_->on_relabel({MemorySpace::device, from, nbytes, owner_, now}, to);
}

void Books::follow(const std::vector<MemoryPoint>& points, std::size_t first, std::size_t last,
                   const std::string& segment, const std::string& unit, bool is_backward,
                   const std::vector<std::int64_t>& at, std::int64_t done, bool counts_gradients) {
  using nn::CallState;
  const auto operation_of = [&](std::size_t i) {
    return segment + "." + points[i].after.substr(0, points[i].after.find(':'));
  };
  const auto passed = [&](std::size_t i) -> std::int64_t {
    if (at.empty()) return 0;
    if (points.back().kernels > 0) return at[std::min(points[i].kernels, at.size() - 1)];
    return at.back() * static_cast<std::int64_t>(i) / static_cast<std::int64_t>(points.size());
  };
  const auto change = [&](MemoryKind kind, std::int64_t nbytes) {
    nbytes > 0 ? hold(kind, nbytes) : drop(kind, -nbytes);
  };
  const CallState begin =
      is_backward ? CallState::before_pre_backward : CallState::before_pre_forward;
  const CallState end =
      is_backward ? CallState::after_post_backward : CallState::after_post_forward;
  for (std::size_t i = first + 1; i <= last; ++i) {
    const MemoryPoint &before = points[i - 1], &now = points[i];
    const std::string operation = operation_of(i);
    const bool is_first = i == first + 1 || operation_of(i - 1) != operation;
    const bool is_last = i == last || operation_of(i + 1) != operation;
    if (is_first) observer_->on_state(operation, begin);
    owner_ = now.after.ends_with(": weight") ? Owner{unit, ""} : Owner{"", operation};
    passed_ = std::max<std::int64_t>(passed(i) - done, 0);
    change(MemoryKind::activation, now.activation - before.activation);
    change(MemoryKind::temp, now.temp - before.temp);
    if (counts_gradients) {
      change(MemoryKind::unsharded_grad, now.weight_grad - before.weight_grad);
    }
    if (is_last) observer_->on_state(operation, end);
  }
  passed_ = 0;
  owner_ = {};
}

void StepWalk::snap(const std::string& module, CallState state, MicroStepMemory& memory) const {
  if (records_) memory.snapshots.push_back({module, state, books_.reported().now()});
  if (books_.observer() != nullptr) books_.observer()->on_state(module, state);
}

void StepWalk::begin_phase(const char* name, int micro_step) const {
  if (books_.observer() != nullptr) books_.observer()->on_phase(name, micro_step);
}

const std::string& StepWalk::name_of(std::size_t segment) const {
  static const std::string loss = "loss";
  return segment < segments_.size() ? shape_.segments[segment] : loss;
}

void StepWalk::walk_section(std::size_t segment, const std::vector<MemoryPoint>& points,
                            const SegmentWalk::Section& section, bool is_backward,
                            const std::vector<std::int64_t>& at, std::int64_t done) {
  if (books_.observer() == nullptr) return books_.walk(section.stretch);
  const Unit* unit = segment < segments_.size() ? unit_of(segment) : nullptr;
  if (unit == nullptr) unit = unit_at(shape_.root);
  books_.follow(points, section.first, section.last, name_of(segment),
                unit == nullptr ? kWholeModel : unit->shape.name, is_backward, at, done,
                counts_gradients_);
}

void StepWalk::walk_forward(std::size_t segment, const std::vector<MemoryPoint>& points,
                            const SegmentWalk::Sections& sections, bool is_backward,
                            const std::vector<std::int64_t>& at) {
  for (const SegmentWalk::Section& section : sections) {
    whole_->before(segment, section.name);
    walk_section(segment, points, section, is_backward, at, /*done=*/0);
    whole_->after(segment, section.name);
  }
}

}  // namespace fsdp::paper
