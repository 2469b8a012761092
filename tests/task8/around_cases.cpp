#include "graded/expect.h"
#include "task8/cases.h"

#include <fmt/format.h>

#include <algorithm>

namespace fsdp::graded {
namespace {

using Lines = std::vector<std::string>;

/// The transfers and computations of one iteration of units that are called once each, in this
/// order. The last one is kept between forward and backward.
class Iteration {
 public:
  Iteration(const Lines& units, int depth) : units_(units), depth_(depth) {}

  Lines forward() {
    lines_.clear();
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (depth_ == 0 || i == 0) add("issue all_gather", i, "/forward");
      add("wait all_gather", i, "/forward");
      if (depth_ > 0 && i + 1 < units_.size()) add("issue all_gather", i + 1, "/forward");
      add("forward_begin", i);
      add("forward_end", i);
    }
    return lines_;
  }
  Lines backward() {
    lines_.clear();
    for (std::size_t i = units_.size(); i-- > 0;) {
      const bool is_last = i + 1 == units_.size();
      // The gather of the second forward: started ahead for its backward, or now.
      const char* phase = depth_ > 0 && !is_last ? "/backward" : "/forward";
      if (depth_ == 0 || is_last) add("issue all_gather", i, phase);
      add("wait all_gather", i, phase);
      if (depth_ > 0 && i > 0) add("issue all_gather", i - 1, "/backward");
      add("forward_begin", i);
      add("forward_end", i);
      if (!is_last) {  // resharded in between
        add("issue all_gather", i, "/backward");
        add("wait all_gather", i, "/backward");
      }
      add("backward_begin", i);
      add("backward_end", i);
      if (!is_last) add("wait reduce_scatter", i + 1, "/gradient");
      add("issue reduce_scatter", i, "/gradient");
    }
    add("wait reduce_scatter", 0, "/gradient");
    return lines_;
  }

 private:
  void add(const char* what, std::size_t unit, const char* phase = "") {
    lines_.push_back(fmt::format("{} {}{}", what, units_[unit], phase));
  }
  const Lines& units_;
  int depth_;
  Lines lines_;
};

std::int64_t gathers_in(const Lines& lines) {
  return std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("issue all_gather");
  });
}

Lines with_prefix(const Lines& lines, const std::string& unit) {
  Lines found;
  for (const std::string& line : lines) {
    if (line.starts_with(unit + ": ")) found.push_back(line.substr(unit.size() + 2));
  }
  return found;
}

}  // namespace

void judge_around(const Setup& setup) {
  const Observations& seen = run("around", setup);
  const Case& asked = seen.asked();
  const auto order = asked.options.value("order", std::vector<int>());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    const Lines units = seen.lines(rank, "units");
    const auto calls_of = [&](std::size_t unit) {
      return order.empty() ? 1 : std::count(order.begin(), order.end(), static_cast<int>(unit));
    };
    for (int step = 0; step < 3; ++step) {
      const std::string name = std::to_string(step);
      for (std::size_t i = 0; i < units.size(); ++i) {
        const auto calls = calls_of(i);
        if (calls == 0) continue;
        Lines forward, backward;
        for (int call = 0; call < calls; ++call) {
          forward.insert(forward.end(), {"scheduler before_forward", "reducer after_forward"});
          backward.insert(backward.end(), {"scheduler before_backward", "reducer pre_backward",
                                           "scheduler before_backward", "reducer post_backward"});
        }
        const Lines in_forward = with_prefix(seen.lines(rank, "seen in forward " + name), units[i]);
        const Lines in_backward =
            with_prefix(seen.lines(rank, "seen in backward " + name), units[i]);
        const auto count = [](const Lines& lines, const char* what) {
          return std::count(lines.begin(), lines.end(), what);
        };
        Check first("8.6",
                    "in forward the scheduler and the reducer see what they would see without a "
                    "checkpoint: the unit is used, and a backward may come",
                    seen);
        // In forward the order of the two does not matter.
        const bool is_same = std::is_permutation(in_forward.begin(), in_forward.end(),
                                                 forward.begin(), forward.end());
        first.at(rank, units[i])
            .equal(fmt::format("what they see in forward {}", step), is_same ? forward : in_forward,
                   forward,
                   {{count(in_forward, "reducer after_forward") == 0,
                     "You did not report to the reducer that a backward may come: the first "
                     "forward has no tape, so the unit's hook does not do it"},
                    {count(in_forward, "scheduler before_forward") == 0 &&
                         count(in_forward, "scheduler before_backward") == 0,
                     "You did not pass the first forward on to the scheduler"},
                    {count(in_forward, "scheduler before_backward") > 0,
                     "You passed the first forward on as before_backward"}});
        if (!first.ok()) return;
        Check second("8.6",
                     "in backward the second forward is a use of backward to the scheduler, and "
                     "nothing to the reducer",
                     seen);
        second.at(rank, units[i])
            .equal(fmt::format("what they see in backward {}", step), in_backward, backward,
                   {{count(in_backward, "reducer after_forward") > 0,
                     "You counted the second forward as a call that waits for its backward"},
                    {count(in_backward, "scheduler before_forward") > 0,
                     "You passed the second forward on as before_forward: the prefetcher takes it "
                     "for the next forward"},
                    {count(in_backward, "reducer post_backward") == 0,
                     "You did not pass on the end of the unit's backward"},
                    {count(in_backward, "reducer pre_backward") == 0,
                     "You did not pass on the beginning of the unit's backward"},
                    {count(in_backward, "scheduler before_backward") == calls,
                     "You passed on to the scheduler only one of the second forward and the "
                     "backward"}});
        if (!second.ok()) return;
      }
      if (!order.empty()) continue;
      Iteration iteration(units, asked.options.value("depth", 1));
      Check events("8.6",
                   "a unit is gathered three times: in forward, for the second forward, and for "
                   "its backward; the last one is kept from its second forward on",
                   seen);
      if (step == 0) continue;  // the prefetcher has no record yet
      const Lines forward = seen.lines(rank, "forward " + name);
      const Lines backward = seen.lines(rank, "backward " + name);
      events.at(rank).equal(fmt::format("the events of forward {}", step), forward,
                            iteration.forward());
      events.equal(
          fmt::format("the events of backward {}", step), backward, iteration.backward(),
          {{gathers_in(backward) == std::ssize(units),
            "You put the checkpoint inside the unit: each unit is gathered once in backward"}});
      if (!events.ok()) return;
    }
    Lines evaluation;
    for (const int layer : order) evaluation.push_back(units[static_cast<std::size_t>(layer)]);
    if (order.empty()) evaluation = units;
    for (std::string& each : evaluation) each += ": scheduler before_forward";
    Check idle("8.6", "without a tape there is nothing to checkpoint", seen);
    idle.at(rank).equal("what the scheduler and the reducer see in an evaluation",
                        seen.lines(rank, "seen in evaluation"), evaluation);
    Check bare("8.6", "both slots may have been empty", seen);
    for (const std::string name :
         {"before_forward", "before_backward", "after_forward", "pre_backward", "post_backward"}) {
      bare.at(rank).accepted(name + "() with empty slots", seen.at(rank, "alone " + name));
    }
    bare.accepted("a forward of units with empty slots", seen.at(rank, "empty slots"));
  }
}

}  // namespace fsdp::graded
