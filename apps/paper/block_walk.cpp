// Blocks that find what the block before them found are walked once.
#include "paper/step_walk.h"

#include <algorithm>
#include <utility>

namespace fsdp::paper {

// In the middle of a deep model every block meets the same: as many units are gathered ahead, and
// what travels has as long to go. So the change from one block to the next is the same too, and the
// bytes grow or shrink by the same amount. The first and the last of such blocks are walked: the
// peak is in one of them.

// Alike are blocks of one form whose units have one form, each in a unit of its own or all in none.
void StepWalk::find_alike_blocks() {
  const auto is_alike = [&](std::size_t segment) {
    const int first = shape_.unit_of_segment[1], unit = shape_.unit_of_segment[segment];
    if (segments_[segment] != segments_[1]) return false;
    if (first == ModelShape::kNoUnit || unit == ModelShape::kNoUnit) return first == unit;
    const UnitShape &a = shape_.units[static_cast<std::size_t>(first)],
                    &b = shape_.units[static_cast<std::size_t>(unit)];
    return unit - first == static_cast<int>(segment) - 1 && a.keep == b.keep && a.flats == b.flats;
  };
  last_alike_ = 1;
  // What is whole is reduced in buckets, which do not end where blocks end.
  if (!whole_->is_empty() || !schedule_->reach(false) || !schedule_->reach(true)) return;
  while (last_alike_ + 1 < segments_.size() && is_alike(last_alike_ + 1)) ++last_alike_;
}

// Gradients of the blocks after this one follow it in backward. All others stay where they are.
bool StepWalk::follows(const Travel& travel, int direction) const {
  if (travel.unit == nullptr || direction > 0) return false;
  const auto unit = static_cast<int>(travel.unit - units_.data());
  const int first = shape_.unit_of_segment[1];
  return unit >= first && unit - first < static_cast<int>(last_alike_);
}

// Relative to the block and to the clock: what it leaves to the next one.
StepWalk::Surroundings StepWalk::surroundings(std::size_t segment, int direction) const {
  Surroundings all{in_flight_, lingering_};
  for (const std::int64_t free : books_.busy_until()) all.push_back(books_.time_until(free));
  const int here = shape_.unit_of_segment[segment];
  for (const Travel* travel : {&reducing_, &across_, &copied_}) {
    const std::ptrdiff_t unit = travel->unit == nullptr ? -1 : travel->unit - units_.data();
    all.push_back(follows(*travel, direction) ? here - unit - 2
                                              : unit);  // at most -2, or at least -1
    all.push_back(travel->unit == nullptr ? 0 : books_.time_until(travel->end));
  }
  if (here == ModelShape::kNoUnit) return all;
  for (int ahead = 0; ahead <= reach(direction); ++ahead) {
    const int place = here + direction * ahead;
    const Unit& unit = units_[static_cast<std::size_t>(place)];
    all.push_back(static_cast<std::int64_t>(unit.state));
    all.push_back((unit.has_part ? 2 : 0) + (unit.has_cast ? 1 : 0));
    all.push_back(unit.state == State::in_flight ? books_.time_until(unit.gather_end) : 0);
  }
  return all;
}

std::size_t StepWalk::pass_over(std::size_t segment, int direction, Passed& passed) {
  if (records_ || segment < 1 || segment > last_alike_) return 0;
  const std::size_t left = direction > 0 ? last_alike_ - segment : segment - 1;
  const auto reached = static_cast<std::size_t>(reach(direction));
  if (left <= reached) return 0;
  Surroundings now = surroundings(segment, direction);
  const Books::Change before = std::exchange(passed.books, books_.now());
  if (std::exchange(passed.found, now) != now) return 0;
  const std::size_t count = left - reached;
  books_.repeat(books_.change_since(before), static_cast<std::int64_t>(count));
  move_units(segment, direction * static_cast<int>(count));
  return count;
}

// Those that were passed over are as the last one is, and those ahead as they were ahead of it.
void StepWalk::move_units(std::size_t segment, int by) {
  const int here = shape_.unit_of_segment[segment];
  if (here == ModelShape::kNoUnit) return;
  const int direction = by > 0 ? 1 : -1;
  const auto life = [&](int unit) -> UnitLife& { return units_[static_cast<std::size_t>(unit)]; };
  std::vector<UnitLife> ahead;
  for (int i = 1; i <= reach(direction); ++i) ahead.push_back(life(here + direction * i));
  for (int i = direction; i != by + direction; i += direction) life(here + i) = life(here);
  for (std::size_t i = 0; i < ahead.size(); ++i) {
    life(here + by + direction * static_cast<int>(i + 1)) = ahead[i];
  }
  for (Travel* travel : {&reducing_, &across_, &copied_}) {
    if (follows(*travel, direction)) travel->unit += by;
  }
}

}  // namespace fsdp::paper
