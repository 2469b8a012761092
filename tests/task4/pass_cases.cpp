#include "task4/cases.h"
#include "task4/frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

namespace fsdp::graded {
namespace {

const UnitLayout& find(const std::vector<UnitLayout>& units, const std::string& name) {
  return *std::find_if(units.begin(), units.end(),
                       [&](const UnitLayout& unit) { return unit.name == name; });
}

/// Index of the first (last) line, or the number of lines if there is none (-1).
std::ptrdiff_t first_of(const std::vector<std::string>& lines, const std::string& line) {
  return std::find(lines.begin(), lines.end(), line) - lines.begin();
}
std::ptrdiff_t last_of(const std::vector<std::string>& lines, const std::string& line) {
  return lines.rend() - std::find(lines.rbegin(), lines.rend(), line) - 1;
}

/// Whether forward calls a layer more than once: then its gradient stays while others compute.
bool calls_repeat(const Case& asked) {
  if (!asked.options.value("open", Json::array()).empty()) return true;
  auto order = asked.options.value("order", std::vector<int>{});
  std::sort(order.begin(), order.end());
  return std::adjacent_find(order.begin(), order.end()) != order.end();
}

/// The moments of one unit in a trace.
struct Moments {
  Moments(const std::vector<std::string>& lines, const std::string& unit)
      : end(last_of(lines, "backward_end " + unit)),
        dropped(last_of(lines, "free unsharded_param " + unit)),
        issued(first_of(lines, "issue reduce_scatter " + unit + "/gradient")),
        waited(first_of(lines, "wait reduce_scatter " + unit + "/gradient")) {}
  std::ptrdiff_t end, dropped, issued, waited;
};

void check_order(const Observations& seen, int rank, const std::vector<UnitLayout>& units) {
  const auto lines = seen.lines(rank, "events");
  const auto size = std::ssize(lines);
  std::string before;  // whose reduction was started last
  for (const std::string& name : backward_order(seen.asked())) {
    const Moments unit(lines, name);
    const bool reduces = !find(units, name).trainable().empty();
    const bool never = seen.asked().options.value("group", 0) == 1;
    Check last("4.5", "a unit's gradient is reduced after the last backward node of its last call",
               seen);
    if (reduces) {
      last.at(rank, name)
          .that(
              unit.issued > unit.end, "its reduction started before its backward had ended",
              "started after its last backward node",
              {{calls_repeat(seen.asked()) && unit.issued > first_of(lines, "backward_end " + name),
                "The module was called more than once, and you reduced before its last backward: "
                "the gradient of the calls that ran forward earlier is lost"}});
    }
    Check drop("4.5", "a unit is resharded before its reduction is issued", seen);
    drop.at(rank, name)
        .that(unit.dropped > unit.end, "the full parameters are still allocated",
              "freed after its last backward node",
              {{unit.dropped <= unit.end && never,
                "never() applies to forward only: after its backward a unit is resharded under "
                "every option"},
               {unit.dropped <= unit.end && !reduces,
                "You did not reshard a frozen unit: it has nothing to reduce, but its parameters "
                "are freed all the same"},
               {unit.dropped < 0, "You never resharded the unit"}});
    drop.that(unit.dropped < unit.issued,
              "the full parameters were freed after the reduction started", "freed before it",
              {{true,
                "You started the reduction too early: its leaf is allocated on top of the "
                "parameters, which nothing needs anymore"}});
    if (!reduces) continue;
    Check finish("4.5", "the previous reduction is finished before the next one starts", seen);
    if (!before.empty()) {
      const Moments other(lines, before);
      finish.at(rank, name)
          .that(
              other.waited < unit.issued, "the reduction of " + before + " is still in flight",
              "waited for before that of " + name + " starts",
              {{other.issued < size && other.waited == size, "You never waited for it"},
               {other.waited < size,
                "You started the next reduction first and finished the previous one afterwards"}});
    }
    if (unit.issued < size) before = name;
    Check overlap("4.5", "a reduction runs while the next unit computes", seen);
    const std::string next = next_in_backward(seen.asked(), name);
    const std::ptrdiff_t until = next.empty() ? size : first_of(lines, "backward_end " + next);
    overlap.at(rank, name)
        .that(unit.waited >= until, "its reduction was waited for too early",
              next.empty() ? "in flight when the last node has run"
                           : "in flight while " + next + " computes",
              {{true, "You waited for it before the next unit computes: nothing overlaps"}});
  }
}

/// Backward gathers what it reaches, once. `asked` has the order of the micro-step.
void check_gathers(const std::string& step, const Observations& seen, int rank,
                   const Json& collectives, const Case& asked) {
  const auto gathered = gathers_in(collectives), expected = gathers_of(asked);
  std::vector<std::string> too_many, unreached;
  std::set_difference(gathered.begin(), gathered.end(), expected.begin(), expected.end(),
                      std::back_inserter(too_many));
  const auto reached = backward_order(asked);
  for (const UnitLayout& unit : units_of(asked)) {
    if (std::find(reached.begin(), reached.end(), unit.name) != reached.end()) continue;
    unreached.insert(unreached.end(), unit.flats.size(), gather_line(unit.name));
  }
  std::sort(unreached.begin(), unreached.end());
  const std::set<std::string> distinct(expected.begin(), expected.end());
  const bool repeats =
      !too_many.empty() && std::all_of(too_many.begin(), too_many.end(),
                                       [&](const auto& line) { return distinct.contains(line); });
  Check once(step, "backward gathers the units that it reaches, once each, and no others", seen);
  once.at(rank).equal(
      "what backward gathered (sorted)", gathered, expected,
      {{!too_many.empty() && too_many == unreached,
        "You also gathered units that backward did not reach: reducing zeros needs no parameters"},
       {repeats && calls_repeat(asked) && gathered.size() > expected.size(),
        "You resharded after the first of a module's calls, and gathered again for the next"}});
}

/// Whether `observed` differs only by NaN in the place of +0.
bool is_nan_where_zero(const Floats& observed, const Floats& expected) {
  return std::equal(observed.begin(), observed.end(), expected.begin(), expected.end(),
                    [](float a, float b) { return a == b || (std::isnan(a) && b == 0); });
}

void check_sums(const std::string& step, const Observations& seen, int rank,
                const std::vector<UnitLayout>& units, const Gradients& gradients,
                const std::vector<std::string>& names) {
  const int world = seen.world_size();
  for (const std::string& name : names) {
    const auto flats = find(units, name).trainable();
    for (std::size_t i = 0; i < flats.size(); ++i) {
      const Floats observed = seen.floats(rank, fmt::format("sum {}.{}", name, i));
      const Floats expected = shard_of(gradients.of(flats[i]), rank, world);
      const bool has_nan = std::any_of(observed.begin(), observed.end(),
                                       [](float each) { return std::isnan(each); });
      Check values(step, "the reduced gradient has the same bits as in a single process", seen);
      values.at(rank, name)
          .bits("the sum", observed, expected, valid_of(flats[i], rank, world),
                {{step == "4.5" && has_nan && is_nan_where_zero(observed, expected),
                  "You started the reduction before the gradient was complete: what no parameter "
                  "wrote, and the padding, is still what fresh memory held"},
                 {observed == Floats(expected.size(), 0.0F) && observed != expected,
                  "The sum is zero: what backward had written was lost"},
                 {step == "4.6" && has_nan && is_reached_only_before(seen.asked(), name),
                  "NaN: you reduced fresh memory of a unit that backward did not reach. Reset "
                  "its gradient buffers, because an earlier micro-step left them marked as "
                  "written."}});
    }
  }
}

}  // namespace

void judge_until_end(const Setup& setup) {
  const Observations& seen = run("until_end", setup);
  const auto units = units_of(seen.asked());
  const Gradients gradients(seen.asked());
  const auto order = backward_order(seen.asked());
  std::vector<std::string> expected;
  for (const std::string& name : order) {
    for (auto& line : reductions_of(find(units, name), seen.world_size())) {
      expected.push_back(std::move(line));
    }
  }
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check one("4.5", "every trainable unit that backward reaches reduces its gradient once", seen);
    one.at(rank).equal("what was started besides gathers",
                       reductions_in(seen.at(rank, "collectives")), expected);
    check_order(seen, rank, units);
    check_gathers("4.5", seen, rank, seen.at(rank, "collectives"), seen.asked());
    Check gone("4.5", "after its backward a unit is sharded", seen);
    const auto states = seen.lines(rank, "states");
    for (const std::string& name : order) {
      gone.at(rank, name)
          .that(first_of(states, name + " sharded") < std::ssize(states), "the unit is not sharded",
                "sharded", {{true, "You never resharded the unit after its backward"}});
    }
    const bool kept = std::ssize(order) < std::ssize(units);  // those that backward did not reach
    if (!kept) {
      gone.at(rank).equal(
          "UNSHARDED_PARAM bytes", seen.bytes(rank, "memory", "UNSHARDED_PARAM"), 0,
          {{seen.asked().options.value("group", 0) > 1,
            "Parts of the parameters stay allocated: within(s) keeps them between forward and "
            "backward only"}});
    }
    if (one.ok()) check_sums("4.5", seen, rank, units, gradients, order);
  }
}

void judge_two_gradients(const Setup& setup) {
  const Observations& seen = run("until_end", setup);
  const auto units = units_of(seen.asked());
  const std::int64_t full = full_grad_bytes(units.front(), seen.world_size());
  const auto count = static_cast<std::int64_t>(units.size());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check two("4.5",
              "at most two full gradients exist: that of the unit that computes, and the one "
              "being reduced",
              seen);
    const std::int64_t most = seen.bytes(rank, "most", "UNSHARDED_GRAD");
    two.at(rank).equal(
        "UNSHARDED_GRAD bytes at the worst moment", most, 2 * full,
        {{most == count * full,
          "All full gradients exist at once: no reduction is finished before the end of backward"},
         {most > 2 * full, "The previous reduction is not finished in time"},
         {most == full, "The unit waits for its own reduction: nothing overlaps"}});
    two.equal("REDUCE_SCATTER bytes at the worst moment",
              seen.bytes(rank, "most", "REDUCE_SCATTER"), full / seen.world_size());
    two.equal("UNSHARDED_PARAM bytes at the worst moment",
              seen.bytes(rank, "most", "UNSHARDED_PARAM"), full);
  }
}

void judge_until_each_end(const Setup& setup) {
  const Observations& seen = run("until_each_end", setup);
  const auto units = units_of(seen.asked());
  const std::int64_t full = full_grad_bytes(units.front(), seen.world_size());
  const auto count = static_cast<std::int64_t>(units.size());
  const int group = seen.asked().options.value("per_reduction", 1);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    for (int m = 0; m < seen.asked().options.value("micro_steps", 1); ++m) {
      const bool reduces = (m + 1) % group == 0;
      std::vector<std::string> sends;
      for (auto unit = units.rbegin(); reduces && unit != units.rend(); ++unit) {
        for (const auto& line : reductions_of(*unit, seen.world_size())) sends.push_back(line);
      }
      const std::string at = std::to_string(m);
      Check one("4.5", "every unit reduces its gradient once per group of L micro-steps", seen);
      one.at(rank).equal(fmt::format("what micro-step {} started besides gathers", m + 1),
                         reductions_in(seen.at(rank, "collectives " + at)), sends);
      check_gathers("4.5", seen, rank, seen.at(rank, "collectives " + at), seen.asked());
      Check least("4.5",
                  "under no_sync, too, a unit reshards and adds its gradient to its sum when its "
                  "own backward ends",
                  seen);
      const Json& most = seen.at(rank, "most " + at);
      const auto bytes = [&](const char* kind) { return most.value(kind, std::int64_t{0}); };
      least.at(rank).equal(
          fmt::format("UNSHARDED_PARAM bytes at the worst moment of micro-step {}", m + 1),
          bytes("UNSHARDED_PARAM"), full,
          {{bytes("UNSHARDED_PARAM") == count * full,
            "The parameters of all units are allocated at once: they stay until the end of "
            "backward"}});
      least.at_most(fmt::format("UNSHARDED_GRAD bytes at the worst moment of micro-step {}", m + 1),
                    bytes("UNSHARDED_GRAD"), most_full_gradients(seen.asked(), m));
      least.at_most(fmt::format("REDUCE_SCATTER bytes at the worst moment of micro-step {}", m + 1),
                    bytes("REDUCE_SCATTER"), reduces ? full / seen.world_size() : 0);
    }
  }
}

void judge_until_end_peak(const Setup& setup) {
  const Observations& seen = run("until_end_peak", setup);
  const auto units = units_of(seen.asked());
  const std::int64_t full = full_grad_bytes(units.front(), seen.world_size());
  const std::int64_t shard = full / seen.world_size();
  // Gradients of activations: a few of 4 rows.
  const std::int64_t small = 8 * 4 * 4 * seen.asked().options.value("width", 5);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check peak("4.5",
               "backward needs the parameters of one unit, two full gradients, a leaf, and "
               "sharded gradients",
               seen);
    const Json& noted = seen.at(rank, "peak");
    peak.at(rank).at_most("the peak of memory, above what was held before",
                          noted.at("peak").at("total").get<std::int64_t>() -
                              noted.at("before").at("total").get<std::int64_t>(),
                          3 * full + (1 + std::ssize(units)) * shard + small);
    peak.at_most("the largest block allocated on the heap", noted.at("heap").get<std::int64_t>(),
                 4095, {{true, "You allocated a copy outside the memory tracker"}});
  }
}

void judge_whole_backward(const Setup& setup) {
  const Observations& seen = run("whole_backward", setup);
  const Json& options = seen.asked().options;
  const int steps = options.value("micro_steps", 1), group = options.value("per_reduction", 1);
  const int world = seen.world_size();
  const auto units = units_of(seen.asked());
  const Gradients gradients(seen.asked());
  std::int64_t full = 0, shard = 0;
  std::vector<std::string> names, sharded;
  for (const UnitLayout& unit : units) {
    full += full_grad_bytes(unit, world);
    shard += shard_grad_bytes(unit, world);
    names.push_back(unit.name);
    sharded.push_back(unit.name + " sharded");
  }
  std::vector<std::vector<std::string>> sent_in(static_cast<std::size_t>(steps));
  for (int m = 0; m < steps; ++m) {
    for (const std::string& name : reduction_order(in_micro_step(seen.asked(), m))) {
      for (const auto& line : reductions_of(find(units, name), world)) {
        sent_in[static_cast<std::size_t>(m)].push_back(line);
      }
    }
  }
  /// Those of `sends` that the units make that backward reaches.
  const auto reached_in = [&](int m, std::vector<std::string> sends) {
    const auto reached = backward_order(in_micro_step(seen.asked(), m));
    for (const UnitLayout& unit : units) {
      if (std::find(reached.begin(), reached.end(), unit.name) != reached.end()) continue;
      for (const std::string& line : reductions_of(unit, world)) std::erase(sends, line);
    }
    return sends;
  };
  /// `sends` with what the other units send in the opposite order.
  const auto unreached_turned = [&](int m, std::vector<std::string> sends) {
    const auto count = std::ssize(reached_in(m, sends));
    std::reverse(sends.begin() + count, sends.end());
    return sends;
  };
  for (int rank = 0; rank < world; ++rank) {
    bool all_sent = true;
    for (int m = 0; m < steps; ++m) {
      const auto& sends = sent_in[static_cast<std::size_t>(m)];
      const std::string at = std::to_string(m), memory = "memory " + at;
      const bool reduces = (m + 1) % group == 0;
      Check runs("4.6",
                 "every backward begins with a clean state: no unit's count of calls or other "
                 "state is left over from the previous one",
                 seen);
      runs.at(rank).accepted(fmt::format("the backward of micro-step {} of {}", m + 1, steps),
                             seen.at(rank, "backward " + at));
      if (!runs.ok()) return;
      Check all("4.6",
                "every trainable unit takes part in every reduction, whether backward reached it "
                "or not, last unit first",
                seen);
      const auto started = reductions_in(seen.at(rank, "collectives " + at));
      const bool is_open = in_micro_step(seen.asked(), m).options.value("open", Json()) == -1;
      all.at(rank).equal(
          "what was started besides gathers", started, reduces ? sends : std::vector<std::string>{},
          {{reduces && started.size() > sends.size() &&
                std::equal(sends.begin(), sends.end(), started.begin()),
            "A unit whose backward was over was reduced once more at the end"},
           {reduces && started != sends && started == reached_in(m, sends),
            "A unit that backward did not reach sent nothing"},
           {reduces && started != sends && started == unreached_turned(m, sends),
            "You reduced the units that backward did not reach first to last: they "
            "go last unit first"},
           {reduces &&
                std::is_permutation(started.begin(), started.end(), sends.begin(), sends.end()),
            "The order is another: units whose backward did not end go last unit "
            "first, half done or not reached"},
           {reduces && started.empty() && is_open,
            "A forward whose loss was dropped left calls open, and the units wait "
            "for their backward: nothing was sent"}});
      all_sent = all_sent && all.ok();
      if (!options.value("ahead", false)) {
        check_gathers("4.6", seen, rank, seen.at(rank, "collectives " + at),
                      in_micro_step(seen.asked(), m));
      }
      Check clean("4.6", "after backward every unit is sharded and nothing is in flight", seen);
      clean.at(rank).equal("the states", seen.lines(rank, "states " + at), sharded);
      clean.equal("UNSHARDED_PARAM bytes", seen.bytes(rank, memory, "UNSHARDED_PARAM"), 0);
      clean.equal("the unit whose reduction is in flight", seen.text(rank, "reducing " + at), "");
      clean.equal(
          "REDUCE_SCATTER bytes", seen.bytes(rank, memory, "REDUCE_SCATTER"), 0,
          {{!seen.text(rank, "reducing " + at).empty(), "You did not finish the last reduction"}});
      const std::int64_t held = seen.bytes(rank, memory, "UNSHARDED_GRAD");
      std::int64_t of_reached = 0;
      for (const std::string& name : backward_order(in_micro_step(seen.asked(), m))) {
        of_reached += full_grad_bytes(find(units, name), world);
      }
      clean.equal("UNSHARDED_GRAD bytes", held, full * partials((m + 1) % group),
                  {{(m + 1) % group == 1 && held == of_reached && held < full,
                    "Only the units that backward reached hold a gradient: under no_sync, too, the "
                    "others hold zeros"}});
      clean.equal("SHARDED_GRAD bytes", seen.bytes(rank, memory, "SHARDED_GRAD"),
                  shard * partials((m + 1) / group));
      Check count("4.6", "a backward counts as one micro-step", seen);
      const std::int64_t counted = seen.number(rank, "micro-steps " + at);
      count.at(rank).equal(
          "micro_step()", counted, m + 1,
          {{counted == 0, "You did not count the micro-step"},
           {counted > m + 1, "You counted more than one micro-step per backward"}});
      Check cleared("4.6", "nothing that a unit counts or marks is left over for the next backward",
                    seen);
      for (const UnitLayout& unit : units) {
        const auto calls = seen.number(rank, fmt::format("open calls of {} {}", unit.name, m));
        cleared.at(rank, unit.name)
            .equal(fmt::format("open_calls after micro-step {} of {}", m + 1, steps), calls, 0,
                   {{calls > 0,
                     "A call of this unit was abandoned, and you did not reset its count: in the "
                     "next backward it waits for more calls than there are"},
                    {calls < 0,
                     "You counted down for a unit that had no open call, and did not reset its "
                     "count: its next call will not be its last"}});
        const std::string marks = seen.text(rank, fmt::format("marks of {} {}", unit.name, m));
        cleared.equal(fmt::format("the marks after micro-step {} of {}", m + 1, steps), marks, "",
                      {{full_grad_bytes(unit, world) == 0,
                        "You skipped a frozen unit: its marks must be cleared as well"},
                       {true,
                        "You did not clear its marks: the next backward does not treat the "
                        "unit as one that has not begun"}});
      }
      Check one("4.6", "units that backward did not reach send their zeros one after the other",
                seen);
      const Json& most = seen.at(rank, "most " + at);
      const Case now = in_micro_step(seen.asked(), m);
      if (!calls_repeat(now)) {
        one.at(rank).at_most("UNSHARDED_GRAD bytes at the worst moment",
                             most.value("UNSHARDED_GRAD", std::int64_t{0}),
                             most_full_gradients(now, m));
      }
    }
    if (all_sent) check_sums("4.6", seen, rank, units, gradients, names);
  }
}

}  // namespace fsdp::graded
