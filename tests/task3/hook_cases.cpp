#include "task3/cases.h"
#include "task3/tower.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

struct Pass {
  std::vector<std::string> events, states, heard;
  std::int64_t held = 0;  // UNSHARDED_PARAM bytes afterwards
};

/// What a forward of the tower of `asked` must do.
Pass expected_pass(const Case& asked, bool tape) {
  const auto layers = static_cast<std::size_t>(asked.options.value("layers", 1));
  const int group = asked.options.value("group", 0);
  const auto kept = asked.options.value("keep", std::vector<int>{});
  Pass pass;
  for (std::size_t i = 0; i < layers; ++i) {
    const Layer layer = layer_of(asked, i);
    const std::string name = unit_name(i);
    const bool keeps = std::find(kept.begin(), kept.end(), static_cast<int>(i)) != kept.end();
    const bool stays = tape && (keeps || group == 1);
    const auto each_flat = [&](const std::string& line) {
      pass.events.insert(pass.events.end(), layer.flats.size(), line);
    };
    each_flat("issue all_gather " + name + "/forward");
    each_flat("wait all_gather " + name + "/forward");
    pass.events.push_back("forward_begin " + name);
    pass.events.push_back("forward_end " + name);
    if (!stays) each_flat("free unsharded_param " + name);
    pass.states.push_back(stays ? "unsharded" : "sharded");
    if (stays) pass.held += layer.bytes();
    if (!stays && tape && group > 1) pass.held += layer.bytes() / group;
    if (asked.options.value("scheduler", true)) pass.heard.push_back(name + " unsharded");
  }
  return pass;
}

bool asks_for(const Case& asked, const char* option) { return asked.options.contains(option); }

void check_pass(const Seen& seen, int rank, const std::string& name, bool tape) {
  const Pass expected = expected_pass(seen.asked(), tape);
  Lesson order("3.5", "a unit's parameters come before it computes and go after it", seen);
  const auto events = seen.lines(rank, name);
  const auto states = seen.lines(rank, name + " states");
  const auto heard = seen.lines(rank, name + " heard");
  const bool root_goes = tape && asks_for(seen.asked(), "keep") && states != expected.states &&
                         std::count(states.begin(), states.end(), "sharded") == std::ssize(states);
  const bool stays =
      !tape && std::count(states.begin(), states.end(), "sharded") != std::ssize(states);
  order.at(rank).equal("a forward " + name, events, expected.events,
                       {{root_goes, "keep_until_backward was not asked first"},
                        {stays, "without a tape a unit is resharded always: ask grad_enabled()"}});
  order.bits("the output", seen.floats(rank, name + " output"), output_of(seen.asked()));
  Lesson rule("3.5",
              tape ? "between forward and backward a unit keeps what the options say, the root "
                     "rule first"
                   : "without a tape no backward will come: nothing is kept",
              seen);
  rule.at(rank).equal("the states afterwards", states, expected.states);
  const std::int64_t held = seen.bytes(rank, name + " memory", "UNSHARDED_PARAM");
  rule.equal("UNSHARDED_PARAM bytes afterwards", held, expected.held,
             {{held > 0 && expected.held == 0, "never resharded"}});
  Lesson slot("3.5", "the scheduler hears of every unit once it has its parameters", seen);
  const bool too_early = std::any_of(heard.begin(), heard.end(), [](const std::string& line) {
    return !line.ends_with(" unsharded");
  });
  slot.at(rank).equal("what it heard", heard, expected.heard,
                      {{too_early, "told before finish_unshard"}});
}

}  // namespace

void judge_hooks(const Ask& ask) {
  const Seen& seen = run("hooks", ask);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    check_pass(seen, rank, "with a tape", true);
    check_pass(seen, rank, "without", false);
  }
}

}  // namespace fsdp::graded
