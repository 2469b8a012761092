#include "graded/expect.h"
#include "task8/cases.h"
#include "task8/shards.h"
#include "task8/sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace fsdp::graded {
namespace {

std::vector<std::string> lines_of(const Json& collectives) {
  std::vector<std::string> lines;
  for (const Json& each : collectives) {
    lines.push_back(fmt::format("{} {}/{} of {} {}", each.at("op").get<std::string>(),
                                each.at("unit").get<std::string>(),
                                each.at("phase").get<std::string>(), each.at("numel").dump(),
                                each.at("dtype").get<std::string>()));
  }
  return lines;
}

/// What calls of start(), and a finish() at the end, ought to do.
class Played {
 public:
  /// The events of the next call.
  std::vector<std::string> start(const std::string& unit, int flat, int call) {
    const std::string name = name_of_sum(unit, flat);
    leaves[name];
    const bool is_next = std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& each) {
      return each.unit != unit || each.name == name;
    });
    std::vector<std::string> events;
    if (is_next) events = finish();
    under_way_.push_back({unit, name, call, flat});
    events.push_back(fmt::format("issue all_reduce {}/gradient", unit));
    return events;
  }
  std::vector<std::string> finish() {
    std::vector<std::string> events = waits();
    for (const Call& each : under_way_) leaves[each.name].push_back(each);
    under_way_.clear();
    return events;
  }
  /// Of an abandoned step: nothing becomes a leaf.
  void clear() { under_way_.clear(); }
  /// Whose shards are under way, one line per shard.
  std::vector<std::string> units() const {
    std::vector<std::string> units;
    for (const Call& each : under_way_) units.push_back(each.unit);
    return units;
  }
  std::vector<std::string> waits() const {
    std::vector<std::string> events;
    for (const Call& each : under_way_) {
      events.push_back(fmt::format("wait all_reduce {}/gradient", each.unit));
    }
    return events;
  }
  Json counts() const {
    Json counts = Json::object();
    for (const auto& [name, of_sum] : leaves) counts[name] = of_sum.size();
    return counts;
  }

  struct Call {
    std::string unit, name;
    int call, flat;
  };
  std::map<std::string, std::vector<Call>> leaves;

 private:
  std::vector<Call> under_way_;
};

/// Events of calls of start() after the first; the leaves that they leave.
bool check_calls(const Observations& seen, int rank, Played& played, const Starts& starts,
                 const std::string& prefix, int first_call) {
  for (int call = 0; call < std::ssize(starts); ++call) {
    const auto& [unit, flat] = starts[static_cast<std::size_t>(call)];
    const std::string name = prefix + std::to_string(call);
    const auto before = played.waits();
    const auto expected = played.start(unit, flat, first_call + call);
    const auto events = seen.lines(rank, "events " + name);
    Check check("8.3",
                "start() finishes what is under way of another unit, or of the same sum, and "
                "nothing else, before it issues its own all-reduce",
                seen);
    const auto waited = [&](const std::vector<std::string>& lines) {
      return std::any_of(lines.begin(), lines.end(),
                         [](const std::string& line) { return line.starts_with("wait"); });
    };
    const bool is_same =
        !starts.empty() && call > 0 && starts[static_cast<std::size_t>(call) - 1].first == unit;
    check.at(rank, unit)
        .equal(
            fmt::format("the trace of call {} of start(), flat parameter {}", call + 1, flat),
            events, expected,
            {{!waited(events) && waited(expected) && !is_same,
              "You left shards of two units under way"},
             {!waited(events) && waited(expected),
              "You left two shards of one sum under way, of two micro-steps"},
             {waited(events) && !waited(expected),
              "You waited for another flat parameter of the same unit, but these travel together"},
             {!events.empty() && events.front().starts_with("issue") && waited(events),
              "You started the next all-reduce before you finished the last ones"}});
    if (!check.ok()) return false;
    const Json leaves = seen.at(rank, "leaves " + name);
    Check pushed("8.3", "what is finished becomes a leaf of its sum", seen);
    pushed.at(rank, unit)
        .equal(fmt::format("leaves of each sum after call {}", call + 1), leaves.dump(),
               played.counts().dump());
    if (!pushed.ok()) return false;
  }
  return true;
}

void check_sums(const Observations& seen, int rank, const Played& played) {
  const int replicas = seen.world_size();
  for (const auto& [name, calls] : played.leaves) {
    if (calls.empty()) continue;
    std::vector<Floats> leaves;
    for (const Played::Call& each : calls) {
      leaves.push_back(sum_over_replicas(seen.asked(), each.flat, each.call));
    }
    const Floats expected = tree(leaves);
    const Floats sum = seen.floats(rank, "sum " + name);
    Floats mean = expected;
    for (float& each : mean) each /= static_cast<float>(replicas);
    Check check("8.3", "a leaf is the sum over the replicas, in the canonical order", seen);
    check.at(rank).bits("the sum of " + name, sum, expected, -1,
                        {{sum == mean,
                          "You divided by the number of replicas: task 4 divides once, by all "
                          "micro-batches of all ranks"}});
    if (!check.ok()) return;
  }
}

}  // namespace

void judge_start(const Setup& setup) {
  const Observations& seen = run("start", setup);
  const Starts starts = starts_of(seen.asked().options);
  const auto numel = seen.asked().options.value("numel", std::int64_t{5});
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Played played;
    for (int call = 0; call < std::ssize(starts); ++call) {
      const auto& [unit, flat] = starts[static_cast<std::size_t>(call)];
      const std::string name = std::to_string(call);
      const auto lines = lines_of(seen.at(rank, "collectives " + name));
      std::int64_t leaves = 0;
      for (const Json& each : seen.at(rank, "leaves " + name)) leaves += each.get<std::int64_t>();
      Check one("8.2", "one all-reduce (sum) per shard, labeled {unit, gradient}", seen);
      const auto begins = [&](const char* op) {
        return !lines.empty() && lines.front().starts_with(op);
      };
      one.at(rank, unit)
          .equal(
              fmt::format("what start() of flat parameter {} started", flat), lines,
              {fmt::format("all_reduce {}/gradient of {} float32", unit, numel + flat)},
              {{lines.empty() && leaves > 0,
                "You made the shard a leaf without summing it over the replicas"},
               {begins("all_gather"),
                "You gathered the shards of all replicas: that moves R - 1 shards, an all-reduce "
                "2·(R-1)/R of one"},
               {begins("reduce "),
                "You reduced to one replica: each replica steps its own shard and needs the sum"},
               {begins("all_reduce") && lines.front().find("/gradient") == std::string::npos,
                "You gave the label another phase than gradient"}});
      if (!one.ok()) return;
      const auto events = seen.lines(rank, "events " + name);
      const auto before = played.units();
      const auto expected = played.start(unit, flat, call);
      const bool is_next = expected.size() > 1;
      Check next("8.2",
                 "start() calls finish() if a shard of another unit is under way, or one of the "
                 "same sum, and in no other case",
                 seen);
      const bool is_other = !before.empty() && before.front() != unit;
      next.at(rank, unit)
          .equal(fmt::format("how often call {} of start(), for flat parameter {}, called finish() "
                             "with something under way",
                             call + 1, flat),
                 seen.number(rank, "finished " + name), is_next ? 1 : 0,
                 {{is_next && is_other, "You left shards of two units under way"},
                  {is_next, "You left two shards of one sum under way, of two micro-steps"},
                  {true,
                   "You called finish() for another flat parameter of the same unit, but these "
                   "travel together"}});
      if (!next.ok()) return;
      Check flight("8.2", "start() does not wait: the next unit computes meanwhile", seen);
      flight.at(rank, unit)
          .equal(
              "the trace of start()", events, expected,
              {{is_next && !events.empty() && events.front().starts_with("issue"),
                "You started the next all-reduce before you finished the last ones"},
               {!events.empty() && events.front().starts_with("wait"),
                "You waited for the unit's other flat parameter first: their sums travel together"},
               {std::ssize(events) > 1 && events.back().starts_with("wait"),
                "You waited for the sum where you started it, so nothing overlaps"}});
      if (!flight.ok()) return;
      Check room("8.2", "the sum is made in place: a shard is the memory that one costs", seen);
      room.at(rank, unit)
          .equal("the memory that start() allocated, in bytes,",
                 seen.bytes(rank, "after " + name, "total") -
                     seen.bytes(rank, "before " + name, "total"),
                 0, {{true, "You copied the shard before you reduced it"}});
      Check noted("8.2", "what is under way is in under_way_, and no leaf yet", seen);
      noted.at(rank, unit)
          .equal("the number of shards under way", seen.number(rank, "under way " + name),
                 std::ssize(played.units()),
                 {{seen.number(rank, "under way " + name) == 1,
                   "You kept only the last shard in under_way_: the others are lost"}});
      noted.that(seen.at(rank, "own sums " + name).get<bool>(),
                 "the last of under_way_ does not point to the sums that start() got", "those sums",
                 {{true, "You noted the shard with other sums, which it would be added to"}});
      noted.equal("unit_", seen.text(rank, "unit " + name), unit,
                  {{true,
                    "You did not set unit_, so the next call does not know whose shards "
                    "are under way"}});
      noted.equal("the number of leaves in all sums", leaves, 0,
                  {{true, "You made the shard a leaf while its sum is under way"}});
      if (!noted.ok()) return;
    }
    for (int call = 0; call < std::ssize(starts); ++call) {
      const int flat = starts[static_cast<std::size_t>(call)].second;
      const Floats expected = sum_over_replicas(seen.asked(), flat, call);
      Floats mean = expected;
      for (float& each : mean) each /= static_cast<float>(seen.world_size());
      const Floats shard = seen.floats(rank, "shard " + std::to_string(call));
      Check sum("8.2", "the shard becomes the sum over the replicas", seen);
      sum.at(rank).bits(
          fmt::format("the shard of call {}, when its Work has been waited for,", call + 1), shard,
          expected, -1,
          {{shard == mean && seen.world_size() > 1,
            "You averaged, but task 4 divides once, by all micro-batches of all ranks"},
           {shard == shard_of(seen.asked(), flat, rank, call).to_vector<float>() &&
                seen.world_size() > 1,
            "You reduced something else: the shard is as it was"}});
      if (!sum.ok()) return;
    }
  }
}

void judge_finish(const Setup& setup) {
  const Observations& seen = run("finish", setup);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check nothing("8.3", "finish() with nothing under way does nothing", seen);
    nothing.at(rank).equal("the trace of the first finish()", seen.lines(rank, "nothing under way"),
                           {});
    Played played;
    const Starts starts = starts_of(seen.asked().options);
    if (!check_calls(seen, rank, played, starts, "", 0)) return;
    const auto expected = played.finish();
    Check waited("8.3", "finish() waits for everything that is under way", seen);
    auto events = seen.lines(rank, "events");
    waited.at(rank).equal(
        "the trace of finish()", events, expected,
        {{events.size() == 1 && expected.size() > 1, "You waited for one of several shards"}});
    Json none = seen.at(rank, "leaves");
    for (Json& each : none) each = 0;
    Check pushed("8.3", "each sum becomes a leaf, once, and nothing stays under way", seen);
    pushed.at(rank).equal(
        "leaves of each sum after finish()", seen.at(rank, "leaves").dump(), played.counts().dump(),
        {{none == seen.at(rank, "leaves"),
          "You waited in finish() and pushed nothing: the sums are lost"},
         {seen.at(rank, "leaves again") == seen.at(rank, "leaves") && expected.size() > 1,
          "You waited for a shard in finish() that did not become a leaf of its sum"}});
    pushed.equal("the number of shards under way", seen.number(rank, "under way"), 0,
                 {{true, "You left in under_way_ what has been finished"}});
    pushed.equal("the trace of finish() called again", seen.lines(rank, "again"), {});
    if (!waited.ok() || !pushed.ok()) return;
    Check room("8.3", "a leaf takes over the shard's bytes: nothing is allocated", seen);
    const Json& peak = seen.at(rank, "peak");
    room.at(rank).equal("the peak of memory during finish(), above what was held before",
                        peak.at("peak").at("total").get<std::int64_t>() -
                            peak.at("before").at("total").get<std::int64_t>(),
                        0, {{true, "You copied a shard: push() takes its bytes"}});
    check_sums(seen, rank, played);
  }
}

void judge_clear(const Setup& setup) {
  const Observations& seen = run("clear", setup);
  const Json& options = seen.asked().options;
  const Starts starts = starts_of(options);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Played played;
    if (!check_calls(seen, rank, played, starts, "", 0)) return;
    const auto expected = played.waits();
    const Json before = played.counts();
    Check given_up("8.3", "clear() ends what is under way, and nothing becomes a leaf", seen);
    given_up.at(rank).equal("leaves of each sum after clear()", seen.at(rank, "leaves").dump(),
                            before.dump(),
                            {{true,
                              "You pushed in clear() what was under way, as finish() does, but the "
                              "step was abandoned"}});
    given_up.equal(
        "the trace of clear()", seen.lines(rank, "clearing"), expected,
        {{seen.number(rank, "under way") > 0,
          "You left under_way_ as it was in clear(): the next step would sum shards of this one"}});
    given_up.equal("the number of shards under way", seen.number(rank, "under way"), 0,
                   {{true, "You waited in clear(), but left under_way_ as it was"}});
    given_up.equal("REDUCE_SCATTER bytes after clear()",
                   seen.bytes(rank, "cleared", "REDUCE_SCATTER"), 0,
                   {{true, "You still hold a shard that was abandoned"}});
    if (!given_up.ok()) return;
    played.clear();
    for (auto& [name, leaves] : played.leaves) leaves.clear();
    if (!check_calls(seen, rank, played, starts_of(options, "then_starts"), "then ",
                     static_cast<int>(starts.size()))) {
      return;
    }
    played.finish();
    Check after("8.3", "after clear() the next step starts from nothing", seen);
    after.at(rank).equal("leaves of each sum", seen.at(rank, "leaves at the end").dump(),
                         played.counts().dump());
    check_sums(seen, rank, played);
  }
}

}  // namespace fsdp::graded
