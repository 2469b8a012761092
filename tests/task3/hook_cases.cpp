// Step 3.5: the hooks, and the root rule.
#include "support/numbers.h"
#include "task3/cases.h"
#include "task3/tower.h"

#include <algorithm>

namespace fsdp::graded {
namespace {

/// What a forward must do.
struct Pass {
  std::vector<std::string> events, gathers, states, heard;
  std::int64_t held = 0;  // UNSHARDED_PARAM bytes afterwards
};

/// The units of a case, as they should be between its passes.
class Units {
 public:
  explicit Units(const Case& asked) : asked_(asked) {
    for (int i = 0; i < asked.options.value("layers", 1); ++i) {
      layers_.push_back(layer_of(asked, static_cast<std::size_t>(i)));
    }
    now_.resize(layers_.size(), Now::sharded);
  }

  void reset() { now_.assign(now_.size(), Now::sharded); }
  void first_is_left_unsharded() { now_.front() = Now::unsharded; }
  void last_is_started() { now_.back() = Now::in_flight; }

  Pass forward(bool tape, bool again) {
    Pass pass;
    for (std::size_t i = 0; i < layers_.size(); ++i) call(i, tape, pass);
    if (again) call(0, tape, pass);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      pass.states.push_back(now_[i] == Now::unsharded ? "unsharded" : "sharded");
      if (now_[i] == Now::unsharded) pass.held += layers_[i].bytes();
      if (now_[i] == Now::parts) pass.held += layers_[i].bytes() / group();
    }
    return pass;
  }

 private:
  enum class Now { sharded, parts, in_flight, unsharded };
  int group() const { return asked_.options.value("group", 0); }

  void call(std::size_t i, bool tape, Pass& pass) {
    const Layer& layer = layers_[i];
    const std::string name = unit_name(i);
    const auto each_flat = [&](const std::string& line) {
      pass.events.insert(pass.events.end(), layer.flats.size(), line);
    };
    if (now_[i] == Now::in_flight) each_flat("wait all_gather " + name + "/forward");
    if (now_[i] == Now::sharded || now_[i] == Now::parts) {
      each_flat("issue all_gather " + name + "/forward");
      each_flat("wait all_gather " + name + "/forward");
      const int parts = now_[i] == Now::parts ? group() : asked_.world_size;
      for (auto& line : gathers_of(layer, name, "forward", parts)) pass.gathers.push_back(line);
    }
    if (asked_.options.value("scheduler", true)) pass.heard.push_back(name + " unsharded");
    pass.events.push_back("forward_begin " + name);
    pass.events.push_back("forward_end " + name);
    const auto kept = asked_.options.value("keep", std::vector<int>{});
    const bool keeps = std::find(kept.begin(), kept.end(), static_cast<int>(i)) != kept.end();
    now_[i] = Now::unsharded;
    if (tape && (keeps || group() == 1)) return;
    each_flat("free unsharded_param " + name);
    now_[i] = tape && group() > 1 ? Now::parts : Now::sharded;
  }

  Case asked_;
  std::vector<Layer> layers_;
  std::vector<Now> now_;
};

std::vector<std::string> without_frees(std::vector<std::string> lines) {
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("free "); });
  return lines;
}

/// "a forward with a tape (2)": which of the passes of a case.
std::string title(std::size_t index, const std::string& pass) {
  std::string text = pass == "eval" ? "a forward without a tape" : "a forward with a tape";
  if (pass == "again") text += ", unit.0 called twice";
  return index > 0 ? text + fmt::format(" (the case's pass {})", index + 1) : text;
}

constexpr const char* kReadLate =
    "set_options() was called after install_hooks(): read the options when a hook runs";

void check_pass(const Observations& seen, int rank, std::size_t index, const std::string& kind,
                const Pass& expected, float factor) {
  const bool tape = kind != "eval";
  const std::string name = fmt::format("{} {}", index, kind);
  Check order("3.5", "a unit is unsharded before it computes and resharded after it", seen);
  auto events = seen.lines(rank, name), expected_events = expected.events;
  if (seen.asked().options.value("group", 0) > 1) {
    // Parts are freed, too, when they have been gathered: bytes are checked below.
    events = without_frees(events);
    expected_events = without_frees(expected_events);
  }
  const auto states = seen.lines(rank, name + " states");
  const auto heard = seen.lines(rank, name + " heard");
  const bool all_sharded =
      std::count(states.begin(), states.end(), "sharded") == std::ssize(states);
  const bool as_before = tape && seen.asked().options.contains("set_options") &&
                         states != expected.states && all_sharded;
  const bool root_goes = tape && !as_before && seen.asked().options.contains("keep") &&
                         states != expected.states && all_sharded;
  // Whether units are wrong only where a frozen one was not kept.
  const auto frozen = seen.asked().options.value("frozen", std::vector<std::string>{});
  bool frozen_go = states.size() == expected.states.size() && states != expected.states;
  for (std::size_t i = 0; frozen_go && i < states.size(); ++i) {
    frozen_go = states[i] == expected.states[i] ||
                (states[i] == "sharded" && std::find(frozen.begin(), frozen.end(),
                                                     fmt::format("layers.{}", i)) != frozen.end());
  }
  const bool sharded_but_parts = !tape && all_sharded && seen.asked().options.value("group", 0) > 1;
  // The first lines that differ, or "".
  const auto [ours, theirs] =
      std::mismatch(events.begin(), events.end(), expected_events.begin(), expected_events.end());
  const std::string is = ours == events.end() ? "" : *ours;
  const std::string should_be = theirs == expected_events.end() ? "" : *theirs;
  const bool follows = tape && seen.asked().options.value("group", 0) == 1;
  const Tensor output = output_of(seen.asked(), factor, kind == "again");
  order.at(rank).equal(
      title(index, kind), events, expected_events,
      {{frozen_go && tape,
        "You resharded a frozen unit that the options keep: they apply to frozen units, too"},
       {as_before, kReadLate},
       {root_goes, "You did not check keep_until_backward first"},
       {follows && all_sharded && states != expected.states,
        "You resharded units that never() keeps"},
       {is.starts_with("free ") && should_be.starts_with("forward_begin "),
        "You resharded a unit before its forward: one that is unsharded stays as it is"},
       {is.starts_with("forward_begin ") && should_be.starts_with("wait "),
        "A unit computed before its gather had ended: call finish_unshard() in the pre-forward "
        "hook, in every state"},
       {tape && should_be.starts_with("free "),
        "You did not reshard a unit after its forward: the options do not keep it"},
       {!tape && !all_sharded,
        "You kept a unit without a tape: check grad_enabled(), and always reshard if it is "
        "false"}});
  order.equal("what was gathered in " + title(index, kind),
              collectives_of(seen.at(rank, name + " gathers")), expected.gathers);
  check_tensor(order, "the output of " + title(index, kind), seen, rank, name + " output.0",
               output);
  Check rule("3.5",
             tape ? "between forward and backward a unit keeps what the options specify, and the "
                    "root rule comes first"
                  : "without a tape there is no backward, so nothing is kept",
             seen);
  rule.at(rank).equal(
      "the states after " + title(index, kind), states, expected.states,
      {{as_before, kReadLate}, {root_goes, "You did not check keep_until_backward first"}});
  const std::int64_t held = seen.bytes(rank, name + " memory", "UNSHARDED_PARAM");
  rule.equal("UNSHARDED_PARAM bytes after " + title(index, kind), held, expected.held,
             {{held > 0 && expected.held == 0 && sharded_but_parts,
               "You kept parts for a backward that never runs: without a tape call reshard(), not "
               "reshard_to_subgroup()"},
              {held > 0 && expected.held == 0, "You never resharded the unit"},
              {tape && seen.asked().options.value("group", 0) > 1 && states == expected.states &&
                   held < expected.held,
               "You kept no parts: under within(s) call reshard_to_subgroup()"}});
  Check slot("3.5", "the scheduler is notified of every unit once its parameters are unsharded",
             seen);
  const bool too_early = std::any_of(heard.begin(), heard.end(), [](const std::string& line) {
    return !line.ends_with(" unsharded") && !line.ends_with(", late");
  });
  const bool late = std::any_of(heard.begin(), heard.end(),
                                [](const std::string& line) { return line.ends_with(", late"); });
  const bool none = heard.empty() && !expected.gathers.empty();
  slot.at(rank).equal(
      "what the scheduler saw in " + title(index, kind), heard, expected.heard,
      {{too_early, "You notified the scheduler before finish_unshard()"},
       {late,
        "You notified the scheduler of a unit whose forward had already begun: notify it in "
        "the pre-forward hook, once"},
       {none && tape,
        "The scheduler was not notified: it is set after install_hooks(), so read `scheduler` when "
        "the pre-forward hook runs"},
       {none && !tape, "The scheduler was not notified: notify it without a tape, too"},
       {heard.size() < expected.heard.size(),
        "The scheduler was not notified of every unit: notify it of one that was kept, too"}});
}

}  // namespace

void judge_hooks(const Setup& setup) {
  const Observations& seen = run("hooks", setup);
  const auto passes = seen.asked().options.value(
      "passes", std::vector<std::string>{"tape", "reset", "eval", "reset"});
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Units units(seen.asked());
    float factor = 1;
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const std::string name = fmt::format("{} {}", i, passes[i]);
      if (passes[i] == "reset") {
        units.reset();
        Check floor("3.5", "after all units are resharded nothing of a forward stays allocated",
                    seen);
        floor.at(rank).equal(fmt::format("bytes held after pass {}", i),
                             seen.bytes(rank, name + " memory", "total"),
                             seen.bytes(rank, "floor", "total"));
      } else if (passes[i] == "update") {
        factor *= 2;
      } else if (passes[i] == "ahead") {
        units.last_is_started();
      } else if (passes[i] == "throws") {
        units.first_is_left_unsharded();
        Check comes_out("3.5", "an exception thrown by a module propagates out of its call", seen);
        comes_out.at(rank).refused("an input that is too wide", seen.at(rank, name), "Error", {});
      } else {
        const Pass expected = units.forward(passes[i] != "eval", passes[i] == "again");
        check_pass(seen, rank, i, passes[i], expected, factor);
      }
    }
  }
}

void judge_destroyed(const Setup& setup) {
  const Observations& seen = run("destroyed", setup);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check hooks("3.5", "destroying a unit removes its hooks", seen);
    hooks.at(rank, unit_name()).accepted("calling the module", seen.at(rank, "with its unit"));
    hooks.that(seen.text(rank, "state of the next") == "sharded",
               "calling the module after its unit was destroyed still ran the pre-forward hook",
               "no hook left, because every handle is in hooks_",
               {{true, "You did not push the handle of register_forward_pre_hook() to hooks_"}});
    hooks.refused("calling the module after its unit was destroyed", seen.at(rank, "without"),
                  "StorageError", {unit_name()});
    hooks.accepted("calling the module when its parameters are allocated again",
                   seen.at(rank, "with bytes"));
    hooks.that(seen.text(rank, "state of the next, unsharded") == "unsharded",
               "calling the module after its unit was destroyed still ran the post-forward hook",
               "no hook left, because every handle is in hooks_",
               {{true, "You did not push the handle of register_forward_hook() to hooks_"}});
  }
}

}  // namespace fsdp::graded
