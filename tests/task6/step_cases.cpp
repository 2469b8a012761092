#include "task6/cases.h"
#include "task6/prepared.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fsdp::graded {
namespace {

/// The next places of a guess, but for units that have a place before the cursor.
Handout::Guess without_passed(const Handout::Guess& guess) {
  Handout::Guess rest = guess;
  const auto cursor = rest.order.begin() + static_cast<std::ptrdiff_t>(rest.cursor);
  for (auto place = cursor; place != rest.order.end(); ++place) {
    if (std::find(rest.order.begin(), cursor, *place) != cursor) *place = -1;
  }
  return rest;
}

/// Lines of events without those of some units.
Lines without(Lines lines, const Numbers& units) {
  std::erase_if(lines, [&](const std::string& line) {
    return std::any_of(units.begin(), units.end(), [&](int unit) {
      return line.find(unit_name(unit) + "/") != std::string::npos;
    });
  });
  return lines;
}
Lines without_phase(Lines lines) {
  for (std::string& line : lines) line.resize(line.rfind('/'));
  return lines;
}

/// Several mistakes may lead to the same.
std::string all_that_apply(const std::vector<Cause>& causes) {
  std::vector<std::string> texts;
  for (const Cause& each : causes) {
    if (each.applies) texts.push_back(each.text);
  }
  return any_of(texts);
}

/// Whether ahead_ holds units that it should not, besides all that it should.
bool takes_more(const Observations& seen, int rank, Numbers right) {
  Numbers ahead = seen.at(rank, "ahead").get<Numbers>();
  std::sort(ahead.begin(), ahead.end());
  std::sort(right.begin(), right.end());
  return ahead.size() > right.size() &&
         std::includes(ahead.begin(), ahead.end(), right.begin(), right.end());
}

/// Whether units were resharded that were not ahead.
bool takes_others(const Observations& seen, int rank, const Handout& before) {
  const Lines states = seen.lines(rank, "states");
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto found = std::find(before.ahead.begin(), before.ahead.end(), static_cast<int>(i));
    const bool is_other = before.states[i] != UnitState::sharded && found == before.ahead.end();
    if (is_other && states[i] == "sharded") return true;
  }
  return false;
}

/// Whether ahead_ holds a unit twice.
bool takes_twice(const Observations& seen, int rank) {
  Numbers ahead = seen.at(rank, "ahead").get<Numbers>();
  std::sort(ahead.begin(), ahead.end());
  return std::adjacent_find(ahead.begin(), ahead.end()) != ahead.end();
}

}  // namespace

void judge_walk(const Setup& setup) {
  const Observations& seen = run("walk", setup);
  const Numbers order = guess_of(seen.asked()).order;
  const auto reports = seen.asked().options.at("reports").get<Numbers>();
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("6.1",
                "a report searches for its unit from the cursor on and moves the cursor past it; "
                "a unit that is not found leaves the cursor where it is",
                seen);
    Handout::Guess guess = guess_of(seen.asked());
    for (std::size_t i = 0; i < reports.size(); ++i) {
      const Json& step = seen.at(rank, "steps").at(i);
      const std::size_t before = guess.cursor;
      const int unit = reports[i];
      const bool expected = Handout::advance(guess, unit);
      const auto cursor = step.at("cursor").get<std::int64_t>();
      const auto front = std::find(order.begin(), order.end(), unit) - order.begin();
      const auto right = static_cast<std::int64_t>(guess.cursor);
      const auto was = static_cast<std::int64_t>(before);
      check.at(rank, unit_name(unit))
          .equal(fmt::format("the cursor after its report, searching {} from {} on,",
                             text_of(order), before),
                 cursor, right,
                 {{cursor < was && cursor == front + 1,
                   "You searched the guess from the front, so a unit that is used twice moves the "
                   "cursor back"},
                  {guess.cursor == before && cursor == std::ssize(order),
                   "You moved the cursor to the end for a unit that is not in the guess"},
                  {guess.cursor == before && cursor == was + 1,
                   "You moved the cursor for a unit that is not in the rest of the guess"},
                  {right > was + 1 && cursor == was,
                   "You did not search far enough: the unit may come anywhere after the cursor"},
                  {right > was + 1 && cursor == was + 1,
                   "You moved the cursor by one, but the unit was found farther on"},
                  {right > was && cursor == right - 1,
                   "You left the cursor at the unit just used instead of moving it past it"}});
      const bool returned = step.at("expected").get<bool>();
      check.that(returned == expected, fmt::format("advance returned {}", returned),
                 fmt::format("{}: only the unit at the cursor is expected", expected),
                 {{returned && guess.cursor > before,
                   "You returned whether the unit was found, but true means that it stood at the "
                   "cursor"},
                  {returned, "You returned true for a unit that is not in the rest of the guess"},
                  {!returned, "You returned false for the unit that stood at the cursor"}});
      if (!check.ok()) return;  // what follows would only follow from it
    }
  }
}

void judge_stale(const Setup& setup) {
  const Observations& seen = run("stale", setup);
  Handout handout = prepared(seen.asked());
  const Handout before = handout;
  handout.reshard_stale(guess_of(seen.asked()));
  Handout by_front = before;
  by_front.reshard_stale(without_passed(guess_of(seen.asked())));
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("6.1",
                "units that were gathered ahead and are not among the next `depth` units of the "
                "guess are resharded, and no others",
                seen);
    const bool is_as_before = seen.lines(rank, "states") == names_of(before.states);
    const auto ahead = numbers(seen, rank, "ahead");
    const auto with_depth = [&](int depth) {
      Handout::Options options = Handout::options_of(seen.asked());
      options.depth = depth;
      Handout other(options);
      other.states = before.states;
      other.ahead = before.ahead;
      other.reshard_stale(guess_of(seen.asked()));
      return seen.lines(rank, "states") == names_of(other.states);
    };
    const bool is_right = seen.lines(rank, "states") == names_of(handout.states);
    const bool by_first_place =
        !is_right && seen.lines(rank, "states") == names_of(by_front.states);
    const int depth = seen.asked().options.value("depth", 1);
    const int limit = seen.asked().options.value("limit", depth);
    const bool one_more = with_depth(depth + 1), all = with_depth(depth + 100);
    const bool are_waited_for =
        std::all_of(before.ahead.begin(), before.ahead.end(), [&](int unit) {
          const auto number = static_cast<std::size_t>(unit);
          return handout.states[number] != UnitState::sharded ||
                 before.states[number] == UnitState::unsharded;
        });
    const auto stale = before.ahead.size() - handout.ahead.size();
    const auto left = seen.at(rank, "ahead").size() - handout.ahead.size();
    check_units(
        check, seen, rank, handout,
        {{is_as_before && ahead == sorted(before.ahead) && are_waited_for,
          "You resharded no stale unit whose gather has been waited for already"},
         {is_as_before && ahead == sorted(before.ahead), "You resharded nothing"},
         {is_right && ahead == sorted(before.ahead),
          "You resharded the stale units, but left them in ahead_"},
         {limit != depth && !is_right && with_depth(limit),
          "You counted the next units up to the in-flight limit, not up to the depth"},
         {by_first_place && ahead != "[]",
          "You searched the guess from the front, but a unit that is used twice can come again "
          "after the cursor"},
         {one_more && !all, "You took one unit more than the depth for coming next"},
         {all && !one_more, "You took all the rest of the guess for coming next"},
         {is_as_before && ahead == sorted(handout.ahead),
          "You removed the units from ahead_ but did not reshard them, so nothing does later"},
         {ahead == "[]" && !handout.ahead.empty(), "You resharded units that come next, too"},
         {takes_more(seen, rank, handout.ahead) && left < stale && !one_more && !all,
          "You left some stale units: a call reshards all of them"},
         {takes_others(seen, rank, before), "You resharded units that were not gathered ahead"}});
    const auto held = std::count_if(handout.states.begin(), handout.states.end(),
                                    [](UnitState state) { return state != UnitState::sharded; });
    const std::int64_t world = seen.world_size();
    const std::int64_t bytes = 4 * ((30 + world - 1) / world * world);
    check.equal("the number of UNSHARDED_PARAM bytes",
                seen.bytes(rank, "memory", "UNSHARDED_PARAM") -
                    seen.bytes(rank, "sharded", "UNSHARDED_PARAM"),
                held * bytes);
    check.that(seen.at(rank, "started").empty(), "gathers were started", "none");
  }
}

void judge_start(const Setup& setup) {
  const Observations& seen = run("start", setup);
  const std::string phase = seen.asked().options.value("phase", std::string("forward"));
  Handout handout = prepared(seen.asked());
  handout.start_ahead(guess_of(seen.asked()), phase);
  const auto slipped = [&](Slip slip) {
    Handout::Options options = Handout::options_of(seen.asked());
    options.slip = slip;
    Handout other(options);
    other.states = prepared(seen.asked()).states;
    other.ahead = prepared(seen.asked()).ahead;
    other.start_ahead(guess_of(seen.asked()), phase);
    return other.lines;
  };
  // Units that are there do not count.
  Handout walker = prepared(seen.asked());
  Handout::Guess rest = guess_of(seen.asked());
  rest.order.erase(rest.order.begin(),
                   rest.order.begin() + static_cast<std::ptrdiff_t>(rest.cursor));
  rest.cursor = 0;
  std::erase_if(rest.order, [&](int unit) {
    return walker.states.at(static_cast<std::size_t>(unit)) != UnitState::sharded;
  });
  walker.start_ahead(rest, phase);
  Handout::Options wide = Handout::options_of(seen.asked());
  wide.depth += static_cast<int>(guess_of(seen.asked()).cursor);
  if (wide.limit == 0) wide.limit = Handout::options_of(seen.asked()).depth;
  Handout fronted(wide);
  fronted.states = prepared(seen.asked()).states;
  fronted.start_ahead({guess_of(seen.asked()).order, 0}, phase);
  const auto frozen = seen.asked().options.value("frozen", Numbers{});
  const auto kept = seen.asked().options.value("keep", Numbers{});
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    const auto events = seen.lines(rank, "events");
    const std::string slips = all_that_apply(
        {{events == slipped(Slip::unlimited),
          "You did not check the limit of gathers in flight before each gather"},
         {events == slipped(Slip::one_ahead), "You gathered one unit ahead, whatever the depth"},
         {events == slipped(Slip::one_more), "You started one unit more than the depth"},
         {events == slipped(Slip::one_more_in_flight),
          "You had one gather more than the limit in flight: start one only while fewer are"},
         {events != handout.lines && events == slipped(Slip::one_less_in_flight),
          "You had one gather less than the limit in flight"},
         {events == slipped(Slip::limit_of_its_own),
          "You counted only the gathers of units in ahead_ toward the limit, but all gathers in "
          "flight count, wherever they were started"},
         {events == slipped(Slip::limit_of_ahead),
          "You counted units in ahead_ toward the limit whose gather was waited for already"},
         {events == slipped(Slip::limit_for_depth),
          "You looked at as many units as the in-flight limit, not as the depth"},
         {events == slipped(Slip::stops_at_unsharded),
          "You stopped at a unit that is not sharded, but such a unit only takes a place"},
         {events != handout.lines && events == without(handout.lines, frozen),
          "You did not gather units ahead that are not trained"},
         {events != handout.lines && events == without(handout.lines, kept),
          "You did not gather units ahead that are kept until backward"},
         {events == Lines(handout.lines.rbegin(), handout.lines.rend()) && events != handout.lines,
          "You started the next units in the reverse of their order"},
         {events != handout.lines && without_phase(events) == without_phase(handout.lines),
          "You started the gathers under another phase than the given one"},
         {events == fronted.lines && events != handout.lines,
          "You began at the front of the guess, not at its cursor"},
         {handout.lines.size() > 1 && events == std::vector{handout.lines.back()},
          "You started only the farthest of the next `depth` units, although the nearer ones are "
          "sharded too"},
         {events == walker.lines,
          "You did not count units toward the depth that are already unsharded"}});
    Check first("6.2",
                "among the next `depth` units of the guess, the sharded ones are started in order "
                "while fewer gathers than the limit are in flight, and nothing is waited for",
                seen);
    const bool waits = std::any_of(events.begin(), events.end(), [](const std::string& line) {
      return line.starts_with("wait ");
    });
    first.at(rank).equal(
        "the trace", events, handout.lines,
        {{waits,
          "You waited for the gather, as finish_unshard() does: call only start_unshard() here"},
         {events.empty() && slips.empty(), "You started nothing"},
         {!slips.empty(), slips}});
    Check second("6.2", "units that are started here are added to ahead_, and no others", seen);
    check_units(
        second, seen, rank, handout,
        {{numbers(seen, rank, "ahead") == sorted(prepared(seen.asked()).ahead),
          "You did not add the started units to ahead_, so nothing can reshard them when they are "
          "stale"},
         {takes_twice(seen, rank), "You added a unit to ahead_ that is in it already"},
         {takes_more(seen, rank, handout.ahead),
          "You added a unit to ahead_ that was already unsharded, as if it had been started "
          "here"}});
  }
}

}  // namespace fsdp::graded
