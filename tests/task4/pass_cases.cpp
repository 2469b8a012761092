#include "task4/cases.h"
#include "task4/frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

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
  if (asked.options.value("dropped", false)) return true;
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

void check_order(const Seen& seen, int rank, const std::vector<UnitLayout>& units) {
  const auto lines = seen.lines(rank, "events");
  const auto size = std::ssize(lines);
  std::string before;  // whose reduction was started last
  for (const std::string& name : backward_order(seen.asked())) {
    const Moments unit(lines, name);
    const bool reduces = !find(units, name).trainable().empty();
    Lesson last("4.5", "a unit's gradient is sent after the last backward node of its last call",
                seen);
    if (reduces) {
      last.at(rank, name)
          .that(unit.issued > unit.end, "its reduction started before its end",
                "started after its last backward node",
                {{true,
                  "its module was called more than once, and the gradient of "
                  "the calls that ran forward earlier is lost"}});
    }
    Lesson drop("4.5", "the full parameters go before the reduction is issued", seen);
    drop.at(rank, name)
        .that(unit.dropped > unit.end, "the full parameters are still there",
              "freed after its last backward node", {{true, "never resharded"}});
    drop.that(unit.dropped < unit.issued, "the full parameters went after the reduction started",
              "freed before", {{true, "reshard, then start: else the leaf comes on top"}});
    if (!reduces) continue;
    Lesson finish("4.5", "the reduction before is finished before the next one starts", seen);
    if (!before.empty()) {
      const Moments other(lines, before);
      finish.at(rank, name)
          .that(other.waited < unit.issued, "the reduction of " + before + " is still in flight",
                "waited for before that of " + name + " starts",
                {{other.waited == size, "it is never waited for"},
                 {true, "started first, finished afterwards"}});
    }
    before = name;
    Lesson overlap("4.5", "a reduction runs while the next unit computes", seen);
    const std::string next = next_in_backward(seen.asked(), name);
    const std::ptrdiff_t until = next.empty() ? size : first_of(lines, "backward_end " + next);
    overlap.at(rank, name)
        .that(unit.waited >= until, "its reduction was waited for at once",
              next.empty() ? "in flight when the last node has run"
                           : "in flight while " + next + " computes",
              {{true, "nothing overlaps: it waits for its own reduction"}});
  }
}

void check_sums(const std::string& step, const Seen& seen, int rank,
                const std::vector<UnitLayout>& units, const Gradients& gradients,
                const std::vector<std::string>& names) {
  const int world = seen.world_size();
  for (const std::string& name : names) {
    const auto flats = find(units, name).trainable();
    for (std::size_t i = 0; i < flats.size(); ++i) {
      const Floats observed = seen.floats(rank, fmt::format("sum {}.{}", name, i));
      const Floats expected = shard_of(gradients.of(flats[i]), rank, world);
      Lesson values(step, "the reduced gradient has the bits of a single process", seen);
      values.at(rank, name)
          .bits("the sum", observed, expected, valid_of(flats[i], rank, world),
                {{observed == Floats(expected.size(), 0.0F) && observed != expected,
                  "zeros: what backward had written was lost"}});
    }
  }
}

}  // namespace

void judge_until_end(const Ask& ask) {
  const Seen& seen = run("until_end", ask);
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
    Lesson one("4.5", "every trainable unit that backward passes sends its gradient once", seen);
    one.at(rank).equal("what was started besides gathers",
                       reductions_in(seen.at(rank, "collectives")), expected);
    check_order(seen, rank, units);
    Lesson gone("4.5", "after a unit's backward its parameters are gone", seen);
    const auto states = seen.lines(rank, "states");
    for (const std::string& name : order) {
      gone.at(rank, name)
          .that(first_of(states, name + " sharded") < std::ssize(states), "the unit is not sharded",
                "sharded", {{true, "never resharded after backward"}});
    }
    if (one.ok()) check_sums("4.5", seen, rank, units, gradients, order);
  }
}

void judge_two_gradients(const Ask& ask) {
  const Seen& seen = run("until_end", ask);
  const auto units = units_of(seen.asked());
  const std::int64_t full = full_grad_bytes(units.front(), seen.world_size());
  const auto count = static_cast<std::int64_t>(units.size());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Lesson two("4.5",
               "at most two full gradients exist: the unit's that computes, and the one "
               "being reduced",
               seen);
    const std::int64_t most = seen.bytes(rank, "most", "UNSHARDED_GRAD");
    two.at(rank).equal("UNSHARDED_GRAD bytes at the worst moment", most, 2 * full,
                       {{most == count * full,
                         "a full set of gradients: nothing is sharded until "
                         "the end"},
                        {most > 2 * full, "the reduction before is not finished in time"},
                        {most == full, "it waits for its own reduction: nothing overlaps"}});
    two.equal("REDUCE_SCATTER bytes at the worst moment",
              seen.bytes(rank, "most", "REDUCE_SCATTER"), full / seen.world_size());
    two.equal("UNSHARDED_PARAM bytes at the worst moment",
              seen.bytes(rank, "most", "UNSHARDED_PARAM"), full);
  }
}

void judge_until_end_peak(const Ask& ask) {
  const Seen& seen = run("until_end_peak", ask);
  const auto units = units_of(seen.asked());
  const std::int64_t full = full_grad_bytes(units.front(), seen.world_size());
  const std::int64_t shard = full / seen.world_size();
  // Gradients of activations: a few of 4 rows.
  const std::int64_t small = 8 * 4 * 4 * seen.asked().options.value("width", 5);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Lesson peak("4.5",
                "backward needs the parameters of one unit, two full gradients, a leaf, and "
                "sharded gradients",
                seen);
    const Json& noted = seen.at(rank, "peak");
    peak.at(rank).at_most("the peak of memory, above what was held before",
                          noted.at("peak").at("total").get<std::int64_t>() -
                              noted.at("before").at("total").get<std::int64_t>(),
                          3 * full + (1 + std::ssize(units)) * shard + small);
    peak.at_most("the largest block taken from the heap", noted.at("heap").get<std::int64_t>(),
                 4095, {{true, "a copy outside the memory tracker"}});
  }
}

void judge_whole_backward(const Ask& ask) {
  const Seen& seen = run("whole_backward", ask);
  const Json& options = seen.asked().options;
  const int steps = options.value("micro_steps", 1), group = options.value("per_reduction", 1);
  const int world = seen.world_size();
  const auto units = units_of(seen.asked());
  const Gradients gradients(seen.asked());
  std::int64_t full = 0, shard = 0, largest = 0, of_root = 0;
  std::vector<std::string> names, sharded;
  for (const UnitLayout& unit : units) {
    full += full_grad_bytes(unit, world);
    const std::int64_t own = full_grad_bytes(unit, world);
    (unit.name == "root" ? of_root : largest) =
        std::max(unit.name == "root" ? of_root : largest, own);
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
  for (int rank = 0; rank < world; ++rank) {
    bool all_sent = true;
    for (int m = 0; m < steps; ++m) {
      const auto& sends = sent_in[static_cast<std::size_t>(m)];
      const std::string at = std::to_string(m), memory = "memory " + at;
      const bool reduces = (m + 1) % group == 0;
      Lesson all("4.6",
                 "every trainable unit takes part in every reduction, reached or not, last "
                 "unit first",
                 seen);
      const auto started = reductions_in(seen.at(rank, "collectives " + at));
      all.at(rank).equal("what was started besides gathers", started,
                         reduces ? sends : std::vector<std::string>{},
                         {{reduces && started.size() < sends.size(),
                           "a unit that backward did not reach sent nothing"}});
      all_sent = all_sent && all.ok();
      Lesson clean("4.6", "after backward every unit is sharded and nothing is in flight", seen);
      clean.at(rank).equal("the states", seen.lines(rank, "states " + at), sharded);
      clean.equal("UNSHARDED_PARAM bytes", seen.bytes(rank, memory, "UNSHARDED_PARAM"), 0);
      clean.equal("the unit whose reduction is in flight", seen.text(rank, "reducing " + at), "");
      clean.equal("REDUCE_SCATTER bytes", seen.bytes(rank, memory, "REDUCE_SCATTER"), 0,
                  {{true, "the last reduction was not finished"}});
      clean.equal("UNSHARDED_GRAD bytes", seen.bytes(rank, memory, "UNSHARDED_GRAD"),
                  full * partials((m + 1) % group));
      clean.equal("SHARDED_GRAD bytes", seen.bytes(rank, memory, "SHARDED_GRAD"),
                  shard * partials((m + 1) / group));
      Lesson count("4.6", "a backward counts as one micro-step", seen);
      const std::int64_t counted = seen.number(rank, "micro-steps " + at);
      count.at(rank).equal(
          "micro_step()", counted, m + 1,
          {{counted == 0, "not counted"}, {counted > m + 1, "counted more than once a backward"}});
      Lesson one("4.6", "units that were not reached send their zeros one after the other", seen);
      const Json& most = seen.at(rank, "most " + at);
      if (group == 1 && !calls_repeat(seen.asked())) {
        one.at(rank).at_most("UNSHARDED_GRAD bytes at the worst moment",
                             most.value("UNSHARDED_GRAD", std::int64_t{0}), 2 * largest + of_root);
      }
    }
    if (all_sent) check_sums("4.6", seen, rank, units, gradients, names);
  }
}

}  // namespace fsdp::graded
