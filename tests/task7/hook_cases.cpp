#include "task7/cases.h"
#include "task7/oracle.h"
#include "task7/plan.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

using Lines = std::vector<std::string>;

/// The two passes of an iteration of a toy at some depth: which collective is started and waited
/// when. `units` in forward order; the kept one is the first if it is the root's, or the last.
/// Those that are frozen whole take part, but reduce nothing.
class Wire {
 public:
  Wire(Names units, Names frozen, int ahead)
      : units_(std::move(units)),
        frozen_(std::move(frozen)),
        ahead_(static_cast<std::size_t>(ahead)) {}

  Lines forward(bool knows_order) {
    lines_.clear();
    started_ = 0;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      reach(units_, i + 1, "forward");
      lines_.push_back("wait all_gather " + units_[i] + "/forward");
      if (knows_order) reach(units_, i + 1 + ahead_, "forward");
      lines_.push_back("forward_begin " + units_[i]);
    }
    return lines_;
  }

  Lines backward() {
    lines_.clear();
    started_ = 0;
    const bool has_root = units_.front() == "root";
    Names order(units_.rbegin(), units_.rend());
    const std::string kept = has_root ? "root" : units_.back();
    std::erase(order, kept);
    reach(order, ahead_, "backward");
    lines_.push_back("backward_begin " + kept);
    if (!has_root) reduce(kept);
    for (std::size_t i = 0; i < order.size(); ++i) {
      reach(order, i + 1, "backward");
      lines_.push_back("wait all_gather " + order[i] + "/backward");
      reach(order, i + 1 + ahead_, "backward");
      lines_.push_back("backward_begin " + order[i]);
      reduce(order[i]);
    }
    if (has_root) reduce("root");
    lines_.push_back("wait reduce_scatter " + std::exchange(reducing_, "") + "/gradient");
    return lines_;
  }

 private:
  void reach(const Names& order, std::size_t end, const char* phase) {
    for (; started_ < std::min(end, order.size()); ++started_) {
      lines_.push_back("issue all_gather " + order[started_] + "/" + phase);
    }
  }
  void reduce(const std::string& unit) {
    if (!reducing_.empty()) lines_.push_back("wait reduce_scatter " + reducing_ + "/gradient");
    reducing_.clear();
    if (std::find(frozen_.begin(), frozen_.end(), unit) != frozen_.end()) return;
    lines_.push_back("issue reduce_scatter " + unit + "/gradient");
    reducing_ = unit;
  }

  Names units_, frozen_;
  std::size_t ahead_;
  std::size_t started_ = 0;
  std::string reducing_;
  Lines lines_;
};

std::int64_t gathers_in(const Lines& lines) {
  return std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("issue all_gather");
  });
}

int most_in_flight(const Lines& lines) {
  int now = 0, most = 0;
  for (const std::string& line : lines) {
    now += line.starts_with("issue all_gather") ? 1 : 0;
    now -= line.starts_with("wait all_gather") ? 1 : 0;
    most = std::max(most, now);
  }
  return most;
}

constexpr const char* kNotCounted =
    "You left frozen units out of the list for the prefetcher, so it does not count them: more "
    "gathers are in flight than the limit allows";

}  // namespace

void judge_hooks(const Setup& setup) {
  const Observations& seen = run("hooks", setup);
  const Case& asked = seen.asked();
  const int depth = asked.options.value("depth", 1);
  const int limit = asked.options.value("limit", 0) > 0 ? asked.options.value("limit", 0) : depth;
  Names units, frozen;
  for (const WantedUnit& unit : plan_of(asked).units) {
    units.push_back(unit.name);
    const bool is_frozen = std::none_of(unit.flats.begin(), unit.flats.end(),
                                        [](const WantedFlat& flat) { return flat.trainable; });
    if (is_frozen) frozen.push_back(unit.name);
  }
  Wire wire(units, frozen, std::min(depth, limit));
  Wire serial(units, frozen, 0);
  // More gathers in flight than the limit, in a model that has frozen units.
  const auto not_counted = [&](const Lines& observed, const Lines& expected) {
    return !frozen.empty() && gathers_in(observed) == gathers_in(expected) &&
           most_in_flight(observed) > limit;
  };
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check slots("7.2", "if there is a prefetcher, every unit's slot holds it", seen);
    slots.at(rank).that(seen.at(rank, "prefetcher").get<bool>() == (depth > 0),
                        depth > 0 ? "there is no prefetcher" : "there is a prefetcher at depth 0",
                        depth > 0 ? "one" : "none",
                        {{depth > 0, "You made no prefetcher, although the depth is not 0"},
                         {true, "You made a prefetcher although the depth is 0"}});
    slots.equal(
        "the units whose slot holds something else", seen.lines(rank, "without the prefetcher"), {},
        {{seen.lines(rank, "without the prefetcher") == units,
          "You never filled the slots, so the prefetcher is never called"},
         {!frozen.empty() && seen.lines(rank, "without the prefetcher") == frozen,
          "You filled the slots of trainable units only, but frozen ones are gathered too"}});
    if (depth > 0 && seen.has(rank, "depth")) {
      slots.equal("the prefetcher's depth", seen.number(rank, "depth"), depth,
                  {{true, "You did not pass options_.prefetch_depth on"}});
      slots.equal("the prefetcher's limit of gathers in flight", seen.number(rank, "limit"), limit,
                  {{true, "You did not pass options_.in_flight_limit on"}});
    }
    slots.that(seen.at(rank, "reducer").get<bool>(), "there is no reducer", "one");
    if (!slots.ok()) return;
    for (int i = 0; i < 2; ++i) {
      const std::string name = std::to_string(i);
      Check order("7.2",
                  "hooks run in the order of registration: the forward begins, units gather and "
                  "reshard, the forward ends, backward reduces",
                  seen);
      const Lines forward = seen.lines(rank, "forward " + name);
      const Lines expected = wire.forward(i > 0);
      order.at(rank).equal("forward " + name, forward, expected,
                           {{i > 0 && depth > 0 && forward == serial.forward(false),
                             "You do not notify the prefetcher when a forward begins or ends, so "
                             "nothing is gathered ahead although the order is known"},
                            {not_counted(forward, expected), kNotCounted}});
      if (depth > 0) {
        const Names record = seen.lines(rank, "record " + name);
        order.equal(
            "the recorded order", record, units,
            {{record == Names(units.begin() + 1, units.end()),
              "You notify the prefetcher too late: the first unit reported before the forward "
              "began"},
             {record.empty(), "You never notify the prefetcher of the end of the forward"}});
      }
      const Lines backward = seen.lines(rank, "backward " + name);
      const Lines expected_backward = wire.backward();
      order.equal("backward " + name, backward, expected_backward,
                  {{not_counted(backward, expected_backward), kNotCounted},
                   {std::none_of(backward.begin(), backward.end(),
                                 [](const std::string& line) {
                                   return line.find("reduce_scatter") != std::string::npos;
                                 }),
                    "You did not connect the reducer: none of its backward hooks runs"}});
      Check value("7.2", "sharding changes no bit of the loss", seen);
      const Single& alone = single(asked.options, asked.seed, seen.world_size(), 1);
      if (i > 0) continue;  // no optimizer here, and other data: one comparison is enough
      value.at(rank).bits("the loss", seen.floats(rank, "loss " + name),
                          {static_cast<float>(alone.losses.at({0, rank}))});
    }
    Check left("7.2", "after backward all units are sharded on every rank", seen);
    left.at(rank).equal("the number of units that are not sharded",
                        seen.number(rank, "not sharded"), 0);
  }
}

void judge_left_out(const Setup& setup) {
  const Observations& seen = run("left_out", setup);
  const int depth = seen.asked().options.value("depth", 1);
  Names units;
  for (const WantedUnit& unit : plan_of(seen.asked()).units) units.push_back(unit.name);
  const auto those_with = [](Lines lines, const std::string& part) {
    std::erase_if(lines, [&](const auto& line) { return line.find(part) == std::string::npos; });
    return lines;
  };
  // The root's and the first layer's; what was gathered ahead of the first layer was for nothing.
  const auto used = units.begin() + 2;
  Lines freed, sent;
  freed.push_back("free unsharded_param " + units[1]);
  freed.push_back("free unsharded_param " + units[0]);
  for (auto unit = used; unit != used + depth; ++unit) {
    freed.push_back("free unsharded_param " + *unit);
  }
  for (const auto& unit : {units[1], units[0]}) {
    sent.push_back("issue reduce_scatter " + unit + "/gradient");
  }
  for (auto unit = units.end(); unit != used;) {
    sent.push_back("issue reduce_scatter " + *--unit + "/gradient");
  }
  Lines ends_early = freed, first_to_last = sent;
  std::rotate(ends_early.begin() + 1, ends_early.begin() + 2, ends_early.end());
  std::reverse(first_to_last.begin() + 2, first_to_last.end());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check end(
        "7.2",
        "the prefetcher is notified of the end of a forward after the root's unit has finished",
        seen);
    const Lines observed = those_with(seen.lines(rank, "freed"), " unsharded_param ");
    end.at(rank).equal("what a forward without a tape freed when it skipped layers", observed,
                       freed,
                       {{depth > 0 && observed == ends_early,
                         "You notify the prefetcher of the end before the root's own post-forward "
                         "hook runs, so units gathered ahead and not used are freed first"}});
    Check order("7.2",
                "the reducer gets the units in forward order, and sends those that backward did "
                "not reach from the last to the first",
                seen);
    const Lines reductions = those_with(seen.lines(rank, "sent"), "reduce_scatter");
    order.at(rank).equal(
        "what a backward that skipped layers sent", reductions, sent,
        {{reductions == first_to_last,
          "You gave the reducer the units in another order, so these are sent first to last, and a "
          "rank that did reach one of them sends in a different order"}});
  }
}

}  // namespace fsdp::graded
