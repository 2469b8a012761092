#include "task6/handout.h"
#include "task6/program.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace fsdp::graded {
namespace {

bool holds(const Numbers& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

Numbers next_of(const Handout::Guess& guess, int depth) {
  const std::size_t end =
      std::min(guess.order.size(), guess.cursor + static_cast<std::size_t>(depth));
  return {guess.order.begin() + static_cast<std::ptrdiff_t>(guess.cursor),
          guess.order.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

std::string any_of(const std::vector<std::string>& mistakes) {
  std::string text;
  for (const std::string& each : mistakes) {
    text += text.empty() ? each : "; or y" + each.substr(1);
  }
  return text;
}

std::string unit_name(int number) { return "layers." + std::to_string(number); }

std::vector<std::string> names_of(const std::vector<UnitState>& states) {
  std::vector<std::string> names;
  for (const UnitState state : states) {
    names.push_back(state == UnitState::sharded      ? "sharded"
                    : state == UnitState::unsharding ? "unsharding"
                                                     : "unsharded");
  }
  return names;
}

std::vector<std::string> in_order(std::vector<std::string> lines) {
  const auto is_wait = [](const std::string& line) { return line.starts_with("wait "); };
  for (auto begin = lines.begin(); begin != lines.end();) {
    begin = std::find_if(begin, lines.end(), is_wait);
    const auto end = std::find_if_not(begin, lines.end(), is_wait);
    std::sort(begin, end);
    begin = end;
  }
  return lines;
}

Handout::Options Handout::options_of(const Case& asked) {
  const Json& options = asked.options;
  return {.units = options.value("layers", 5),
          .depth = options.value("depth", 1),
          .limit = options.value("limit", 0),
          .group = options.value("group", 0),
          .kept = options.value("keep", Numbers{}),
          .frozen = options.value("frozen", Numbers{}),
          .tape = options.value("tape", true)};
}

Handout::Handout(Options options)
    : states(static_cast<std::size_t>(options.units), UnitState::sharded),
      options_(std::move(options)),
      phases_(states.size()) {
  if (options_.limit == 0) options_.limit = options_.depth;
}

bool Handout::is_kept(int unit) const { return holds(options_.kept, unit); }
bool Handout::is_frozen(int unit) const { return holds(options_.frozen, unit); }

void Handout::issue(int unit, const std::string& phase) {
  phases_.at(static_cast<std::size_t>(unit)) = phase;
  lines.push_back("issue all_gather " + unit_name(unit) + "/" + phase);
  state(unit) = UnitState::unsharding;
  most_ = std::max(
      most_, static_cast<int>(states.size()) -
                 static_cast<int>(std::count(states.begin(), states.end(), UnitState::sharded)));
}

void Handout::reshard(int unit) {
  if (state(unit) == UnitState::unsharding) {
    lines.push_back("wait all_gather " + unit_name(unit) + "/" +
                    phases_.at(static_cast<std::size_t>(unit)));
  }
  state(unit) = UnitState::sharded;
}

bool Handout::advance(Guess& guess, int unit) {
  const auto from = guess.order.begin() + static_cast<std::ptrdiff_t>(guess.cursor);
  const auto found = std::find(from, guess.order.end(), unit);
  if (found == guess.order.end()) return false;
  guess.cursor = static_cast<std::size_t>(found - guess.order.begin()) + 1;
  return found == from;
}

void Handout::reshard_stale(const Guess& guess) {
  const Numbers next = next_of(guess, options_.depth);
  for (const int unit : Numbers(ahead)) {
    const bool stays = holds(next, unit);
    if (!stays) {
      reshard(unit);
      std::erase(ahead, unit);
    }
    if (has(Slip::oldest_stale_only)) return;
  }
}

void Handout::start_ahead(const Guess& guess, const std::string& phase) {
  if (has(Slip::starts_nothing)) return;
  Guess from = guess;
  if (has(Slip::next_but_one) && from.cursor < from.order.size()) ++from.cursor;
  const int depth = has(Slip::one_ahead)         ? 1
                    : has(Slip::limit_for_depth) ? options_.limit
                                                 : options_.depth + (has(Slip::one_more) ? 1 : 0);
  for (const int unit : next_of(from, depth)) {
    if (state(unit) != UnitState::sharded) {
      if (has(Slip::stops_at_unsharded)) return;
      continue;
    }
    const auto own = std::count_if(ahead.begin(), ahead.end(), [&](int each) {
      return has(Slip::limit_of_ahead) || state(each) == UnitState::unsharding;
    });
    const auto in_flight = has(Slip::limit_of_its_own) || has(Slip::limit_of_ahead)
                               ? own
                               : std::count(states.begin(), states.end(), UnitState::unsharding);
    const int limit = has(Slip::one_less_in_flight)
                          ? std::max(1, options_.limit - 1)
                          : options_.limit + (has(Slip::one_more_in_flight) ? 1 : 0);
    if (in_flight >= limit && !has(Slip::unlimited)) return;
    issue(unit, phase);
    ahead.push_back(unit);
    if (has(Slip::waits)) {
      reshard(unit);  // says that it waits
      state(unit) = UnitState::unsharded;
    }
  }
}

void Handout::begin_pass() {
  lines.clear();
  most_ = static_cast<int>(states.size()) -
          static_cast<int>(std::count(states.begin(), states.end(), UnitState::sharded));
}

Handout::Pass Handout::end_pass() { return {std::exchange(lines, {}), most_, names_of(states)}; }

Handout::Pass Handout::forward(const Numbers& order, const Run& run) {
  begin_pass();
  if (run.resets) {  // the reducer's begin_step
    for (int unit = 0; unit < options_.units; ++unit) reshard(unit);
    begin_pass();
  }
  for (const int unit : ahead) reshard(unit);
  ahead.clear();
  Guess guess{recorded, 0};
  if (has(Slip::first_is_guessed) && recorded.empty()) {
    guess.order.resize(states.size());
    std::iota(guess.order.begin(), guess.order.end(), 0);
  }
  before_ = recorded;
  order_.clear();
  Numbers recording;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const int unit = order[place] % kDropped;
    if (state(unit) == UnitState::sharded) issue(unit, "forward");
    if (state(unit) == UnitState::unsharding) reshard(unit);  // says that it waits
    state(unit) = UnitState::unsharded;
    order_.push_back(order[place]);
    if (!has(Slip::frozen_left_out) || !is_frozen(unit)) recording.push_back(unit);
    std::erase(ahead, unit);
    if (has(Slip::from_itself)) start_ahead(guess, "forward");
    const bool is_stale = !advance(guess, unit) && !has(Slip::never_gives_up);
    if (is_stale && !has(Slip::stale_last)) reshard_stale(guess);
    const bool starts = (run.tape || !has(Slip::needs_tape)) && !has(Slip::from_itself) &&
                        !(is_stale && has(Slip::nothing_if_stale));
    if (starts) start_ahead(guess, "forward");
    if (is_stale && has(Slip::stale_last)) reshard_stale(guess);
    if (static_cast<int>(place) == run.throws_before) return end_pass();
    lines.push_back("forward_begin " + unit_name(unit));
    const bool stays = run.tape && (is_kept(unit) || options_.group == 1);
    if (!stays) reshard(unit);
  }
  for (const int unit : ahead) reshard(unit);
  ahead.clear();
  recorded = recording;
  if (first_.empty()) first_ = recorded;
  return end_pass();
}

void Handout::guess_backward() {
  if (has(Slip::guess_once) && !backward_.order.empty()) return;
  backward_ = {has(Slip::order_before) ? before_ : has(Slip::first_record) ? first_ : recorded, 0};
  Numbers& order = backward_.order;
  if (has(Slip::all_units_backward)) {
    order.resize(states.size());
    std::iota(order.begin(), order.end(), 0);
  }
  if (!has(Slip::same_order)) std::reverse(order.begin(), order.end());
  if (has(Slip::no_repeats_backward)) {
    Numbers once;
    std::copy_if(order.begin(), order.end(), std::back_inserter(once),
                 [&](int unit) { return !holds(once, unit); });
    order = once;
  }
  if (has(Slip::one_kept_only)) {
    const auto kept =
        std::find_if(order.begin(), order.end(), [&](int unit) { return is_kept(unit); });
    if (kept != order.end()) order.erase(kept);
  } else if (!has(Slip::kept_in_order)) {
    std::erase_if(order, [&](int unit) { return is_kept(unit); });
  }
  if (has(Slip::frozen_left_out)) std::erase_if(order, [&](int unit) { return is_frozen(unit); });
}

// By call: whether what it computed has a backward. Only what is trained, and what comes after it
// on the way to the loss, has one.
std::vector<bool> Handout::reached() const {
  std::vector<bool> all;
  bool any = false;
  for (const int call : order_) {
    if (call < kDropped) any = any || !is_frozen(call);
    all.push_back(any && call < kDropped);
  }
  return all;
}

Handout::Pass Handout::backward(bool reduces) {
  begin_pass();
  guess_backward();
  std::map<int, int> open;  // calls whose backward has not ended, by unit
  for (const int call : order_) ++open[call % kDropped];
  int reducing = -1;
  const auto finish_reduce = [&] {
    if (reducing < 0) return;
    lines.push_back("wait reduce_scatter " + unit_name(reducing) + "/gradient");
    reducing = -1;
  };
  const auto reduce = [&](int unit) {
    open[unit] = -1;  // done
    reshard(unit);
    finish_reduce();
    if (is_frozen(unit) || !reduces) return;
    reducing = unit;
    lines.push_back("issue reduce_scatter " + unit_name(unit) + "/gradient");
  };
  const std::vector<bool> has_backward = reached();
  for (std::size_t place = order_.size(); place-- > 0;) {
    if (!has_backward[place]) continue;
    const int unit = order_[place];
    if (state(unit) == UnitState::sharded) issue(unit, "backward");
    if (state(unit) == UnitState::unsharding) reshard(unit);
    state(unit) = UnitState::unsharded;
    std::erase(ahead, unit);
    const bool counts_as_first =
        has(Slip::begins_at_first) && backward_.cursor == 0 && !backward_.order.empty();
    if (has(Slip::guess_every_time)) guess_backward();
    bool is_stale = false;
    if (!is_kept(unit) && counts_as_first) {
      backward_.cursor = 1;
    } else if (!is_kept(unit)) {
      is_stale = !advance(backward_, unit) && !has(Slip::never_gives_up);
    }
    if (is_stale && !has(Slip::stale_last)) reshard_stale(backward_);
    const bool starts =
        (!is_kept(unit) || !has(Slip::kept_silent)) && !(is_stale && has(Slip::nothing_if_stale));
    if (starts) start_ahead(backward_, "backward");
    if (is_stale && has(Slip::stale_last)) reshard_stale(backward_);
    lines.push_back("backward_begin " + unit_name(unit));
    if (--open[unit] == 0) reduce(unit);
  }
  for (int unit = options_.units - 1; unit >= 0; --unit) {
    if (open[unit] >= 0) reduce(unit);
  }
  finish_reduce();
  for (int unit = 0; unit < options_.units; ++unit) reshard(unit);
  ahead.clear();
  return end_pass();
}

}  // namespace fsdp::graded
