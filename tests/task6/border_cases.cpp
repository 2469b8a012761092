#include "task6/cases.h"
#include "task6/prepared.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace fsdp::graded {
namespace {

Numbers recording_of(const Case& asked) { return asked.options.value("recording", Numbers{}); }
Numbers guess_of_all(const Case& asked) {
  Numbers all(static_cast<std::size_t>(asked.options.value("layers", 5)));
  std::iota(all.begin(), all.end(), 0);
  return all;
}
Numbers once(const Numbers& numbers) {
  Numbers kept;
  for (const int number : numbers) {
    if (std::find(kept.begin(), kept.end(), number) == kept.end()) kept.push_back(number);
  }
  return kept;
}

/// Why units are as they were although nothing is to be ahead.
std::vector<Cause> causes_at_borders(const Observations& seen, int rank) {
  const Handout before = prepared(seen.asked());
  const bool as_before = seen.lines(rank, "states") == names_of(before.states);
  const std::string ahead = numbers(seen, rank, "ahead");
  return {{as_before && !before.ahead.empty() && ahead == "[]",
           "You removed the units from ahead_ but did not reshard them, so nothing does later"},
          {as_before && !before.ahead.empty() && ahead == sorted(before.ahead),
           "You left the units that were gathered ahead as they were"},
          {!before.ahead.empty() && ahead == sorted(before.ahead),
           "You resharded the units that were ahead, but left them in ahead_"},
          {std::count(before.states.begin(), before.states.end(), UnitState::sharded) <
                   std::ssize(before.states) - std::ssize(before.ahead) &&
               seen.lines(rank, "states") == Lines(before.states.size(), "sharded"),
           "You resharded every unit, but those that were not gathered ahead are in use"}};
}

}  // namespace

Handout::Guess guess_of(const Case& asked) {
  return {asked.options.value("guess", Numbers{}), asked.options.value("cursor", std::size_t{0})};
}

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

std::string text_of(const Numbers& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}
std::string sorted(Numbers numbers) {
  std::sort(numbers.begin(), numbers.end());
  return text_of(numbers);
}
std::string numbers(const Observations& seen, int rank, const std::string& key) {
  return text_of(seen.at(rank, key).get<Numbers>());
}

void check_units(Check& check, const Observations& seen, int rank, const Handout& handout,
                 const std::vector<Cause>& causes) {
  check.at(rank).equal("the units' states", seen.lines(rank, "states"), names_of(handout.states),
                       causes);
  check.equal("the content of ahead_", numbers(seen, rank, "ahead"), sorted(handout.ahead), causes);
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
    anew.at(rank).equal("the recording", numbers(seen, rank, "recording"), std::string("[]"),
                        {{true, "You did not clear the recording"}});
    const std::string guess = numbers(seen, rank, "guess");
    anew.equal("the guess of forward", guess, text_of(record),
               {{guess == text_of(guess_of(seen.asked()).order),
                 "You left the guess of the previous forward"},
                {guess == sorted(guess_of_all(seen.asked())),
                 "You took the order in which the units were constructed, not that of the last "
                 "complete forward"},
                {guess == text_of(recording_of(seen.asked())),
                 "You took the order of a forward that did not end"}});
    anew.equal("the cursor of the guess", seen.number(rank, "cursor"), 0,
               {{true, "You left the cursor where the previous forward had moved it"}});
    anew.equal("the record", numbers(seen, rank, "recorded"), text_of(record),
               {{true,
                 "You changed the record when a forward began, but it changes only when a "
                 "forward ends"}});
    Check backward("6.3", "a new forward starts with no backward begun", seen);
    backward.at(rank).that(!seen.at(rank, "backward begun").get<bool>(),
                           "the backward counts as begun, so it would use the old guess",
                           "no backward has begun", {{true, "You left backward_begun_ set"}});
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
              ? "You kept the record of the previous forward"
              : "You did not record a forward without a tape, but it counts like any other"},
         {observed == sorted(recording) && observed != text_of(recording),
          "You sorted the record by the order of construction, but the order of the calls counts"},
         {observed == text_of(once(recording)),
          "You recorded a unit once that was called twice, but its second call is a place too"},
         {!before.empty() &&
              observed.starts_with(text_of(before).substr(0, text_of(before).size() - 1)),
          "You added to the record of the previous forward instead of replacing it"}});
  }
}

}  // namespace fsdp::graded
