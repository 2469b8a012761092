#include "graded/expect.h"
#include "task6/cases.h"
#include "task6/handout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fsdp::graded {
namespace {

Handout::Guess guess_of(const Case& asked) {
  return {asked.options.value("guess", Numbers{}), asked.options.value("cursor", std::size_t{0})};
}

/// The units as Recorder::prepare leaves them.
Handout prepared(const Case& asked) {
  Handout handout(Handout::options_of(asked));
  const auto set = [&](const char* option, UnitState state) {
    for (const int unit : asked.options.value(option, Numbers{})) {
      handout.states.at(static_cast<std::size_t>(unit)) = state;
    }
  };
  set("ahead", UnitState::unsharding);
  set("coming", UnitState::unsharding);
  set("there", UnitState::unsharded);
  handout.ahead = asked.options.value("ahead", Numbers{});
  return handout;
}

std::string text_of(Numbers numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }
std::string sorted(Numbers numbers) {
  std::sort(numbers.begin(), numbers.end());
  return text_of(std::move(numbers));
}
std::string numbers(const Observations& seen, int rank, const std::string& key) {
  return text_of(seen.at(rank, key).get<Numbers>());
}

/// The next places of a guess, but for units that have a place before the cursor.
Handout::Guess without_passed(const Handout::Guess& guess) {
  Handout::Guess rest = guess;
  const auto cursor = rest.order.begin() + static_cast<std::ptrdiff_t>(rest.cursor);
  for (auto place = cursor; place != rest.order.end(); ++place) {
    if (std::find(rest.order.begin(), cursor, *place) != cursor) *place = -1;
  }
  return rest;
}

/// Several mistakes may lead to the same.
std::string all_that_apply(const std::vector<Cause>& causes) {
  std::vector<std::string> texts;
  for (const Cause& each : causes) {
    if (each.applies) texts.push_back(each.text);
  }
  return fmt::format("{}", fmt::join(texts, "; or "));
}

/// Whether ahead_ holds units that it should not, besides all that it should.
bool takes_more(const Observations& seen, int rank, Numbers right) {
  Numbers ahead = seen.at(rank, "ahead").get<Numbers>();
  std::sort(ahead.begin(), ahead.end());
  std::sort(right.begin(), right.end());
  return ahead.size() > right.size() &&
         std::includes(ahead.begin(), ahead.end(), right.begin(), right.end());
}

/// Why units are as they were although nothing is to be ahead.
std::vector<Cause> causes_at_borders(const Observations& seen, int rank) {
  const Handout before = prepared(seen.asked());
  const bool as_before = seen.lines(rank, "states") == names_of(before.states);
  const std::string ahead = numbers(seen, rank, "ahead");
  return {{as_before && !before.ahead.empty() && ahead == "[]",
           "the units were removed from ahead_ but not resharded, so nothing reshards them later"},
          {as_before && !before.ahead.empty() && ahead == sorted(before.ahead),
           "the units that were gathered ahead are left as they were"}};
}

/// States of all units, and what is ahead.
void check_units(Check& check, const Observations& seen, int rank, const Handout& handout,
                 const std::vector<Cause>& causes = {}) {
  check.at(rank).equal("the units' states", seen.lines(rank, "states"), names_of(handout.states),
                       causes);
  check.equal("the content of ahead_", numbers(seen, rank, "ahead"), sorted(handout.ahead), causes);
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
                   "the guess is searched from the front, so a unit that is used twice moves the "
                   "cursor back"},
                  {guess.cursor == before && cursor == std::ssize(order),
                   "a unit that is not in the guess moved the cursor to its end"},
                  {right == was + 1 && cursor == was,
                   "the cursor stays at the unit just used instead of moving past it"}});
      check.that(step.at("expected").get<bool>() == expected,
                 fmt::format("advance returned {}", step.at("expected").dump()),
                 fmt::format("{}: only the unit at the cursor is expected", expected));
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
    const bool by_first_place = seen.lines(rank, "states") == names_of(by_front.states);
    const int depth = seen.asked().options.value("depth", 1);
    const bool one_more = with_depth(depth + 1), all = with_depth(depth + 100);
    check_units(
        check, seen, rank, handout,
        {{is_as_before && ahead == sorted(before.ahead), "nothing was resharded"},
         {by_first_place && ahead != "[]",
          "the guess is searched from the front, but a unit that is used twice can come again "
          "after the cursor"},
         {one_more && !all, "one unit more than the depth counts as coming next"},
         {all && !one_more, "all the rest of the guess counts as coming next"},
         {is_as_before && ahead == sorted(handout.ahead),
          "the units were removed from ahead_ but not resharded, so nothing reshards them later"},
         {ahead == "[]" && !handout.ahead.empty(), "units that come next were resharded too"}});
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
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    const auto events = seen.lines(rank, "events");
    const std::string slips = all_that_apply(
        {{events == slipped(Slip::unlimited),
          "the limit of gathers in flight is not checked before each gather"},
         {events == slipped(Slip::one_ahead), "one unit is gathered ahead, whatever the depth"},
         {events == slipped(Slip::one_more), "one unit more than the depth is started"},
         {events == slipped(Slip::one_more_in_flight),
          "one gather more than the limit is in flight: start a gather only while fewer are"},
         {handout.lines.size() > 1 && events == std::vector{handout.lines.back()},
          "only the farthest of the next `depth` units is started, although the nearer ones are "
          "sharded too"},
         {events == walker.lines,
          "units that are already unsharded are not counted toward the depth, but they must be"}});
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
          "the gather is waited for, as finish_unshard() does: call only start_unshard() here"},
         {events.empty(), "nothing was started"},
         {!slips.empty(), slips}});
    Check second("6.2", "units that are started here are added to ahead_, and no others", seen);
    check_units(
        second, seen, rank, handout,
        {{numbers(seen, rank, "ahead") == sorted(prepared(seen.asked()).ahead),
          "the started units are not added to ahead_, so nothing can reshard them when they are "
          "stale"},
         {takes_more(seen, rank, handout.ahead),
          "a unit that was already unsharded is added to ahead_ as if it had been started here"}});
  }
}

void judge_begins(const Setup& setup) {
  Setup asked = setup;
  asked.options["border"] = "begins";
  const Observations& seen = run("border", asked);
  const Numbers record = seen.asked().options.value("recorded", Numbers{});
  Handout handout = prepared(seen.asked());
  handout.reshard_stale({});
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check clean("6.3", "when a forward begins, no unit gathered earlier is left ahead", seen);
    check_units(clean, seen, rank, handout, causes_at_borders(seen, rank));
    clean.that(seen.at(rank, "started").empty(), "gathers were started", "none");
    Check anew("6.3", "the recording starts empty again, and the previous record becomes the guess",
               seen);
    anew.at(rank).equal("the recording", numbers(seen, rank, "recording"), std::string("[]"));
    const std::string guess = numbers(seen, rank, "guess");
    anew.equal("the guess of forward", guess, text_of(record),
               {{guess == text_of(guess_of(seen.asked()).order),
                 "the guess and its cursor are still those of the previous forward"}});
    anew.equal("the cursor of the guess", seen.number(rank, "cursor"), 0);
    anew.equal("the record", numbers(seen, rank, "recorded"), text_of(record));
    Check backward("6.3", "a new forward starts with no backward begun", seen);
    backward.at(rank).that(!seen.at(rank, "backward begun").get<bool>(),
                           "the backward counts as begun, so it would use the old guess",
                           "no backward has begun");
  }
}

void judge_ends(const Setup& setup) {
  Setup asked = setup;
  asked.options["border"] = "ends";
  const Observations& seen = run("border", asked);
  const Numbers recording = seen.asked().options.value("recording", Numbers{});
  const Numbers before = seen.asked().options.value("recorded", Numbers{});
  Handout handout = prepared(seen.asked());
  handout.reshard_stale({});
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check clean(
        "6.3",
        "after forward_ends() no unit that was gathered ahead and not used is left unsharded",
        seen);
    check_units(clean, seen, rank, handout, causes_at_borders(seen, rank));
    Check record("6.3", "the recording of a complete forward becomes the record", seen);
    const auto observed = numbers(seen, rank, "recorded");
    record.at(rank).equal(
        "recorded_order()", observed, text_of(recording),
        {{observed == text_of(before),
          seen.asked().options.value("tape", true)
              ? "the record is still that of the previous forward"
              : "a forward without a tape is not recorded, but it counts like any other forward"}});
  }
}

}  // namespace fsdp::graded
