// Steps 3.1 to 3.4: whatever is called on a unit, in whatever order.
#include "graded/wording.h"
#include "support/numbers.h"
#include "task3/cases.h"
#include "task3/tower.h"

#include <algorithm>
#include <map>

namespace fsdp::graded {
namespace {

std::string name_of_call(char call) {
  switch (call) {
    case 's':
      return "start_unshard(forward)";
    case 'S':
      return "start_unshard(backward)";
    case 'f':
      return "finish_unshard(forward)";
    case 'F':
      return "finish_unshard(backward)";
    case 'c':
      return "start_unshard(checkpoint)";
    case 'r':
      return "reshard()";
    case 'k':
      return "reshard_to_subgroup()";
    default:
      return "an optimizer step";
  }
}

/// What one call did: lines that can be compared.
struct Did {
  std::string error;
  std::vector<std::string> started, waited;
  std::string state = "sharded";
  std::int64_t held = 0;
};

std::string phase_of(char call) {
  if (call == 'c') return "checkpoint";
  return call == 'S' || call == 'F' ? "backward" : "forward";
}

std::string line_of(char call, const Did& did) {
  std::string line = name_of_call(call) + ": ";
  if (!did.error.empty()) return line + did.error;
  if (!did.started.empty()) line += fmt::format("starts {}; ", fmt::join(did.started, ", "));
  if (!did.waited.empty()) line += fmt::format("waits for {}; ", fmt::join(did.waited, ", "));
  return line + fmt::format("{}, {} bytes of UNSHARDED_PARAM", did.state, did.held);
}

/// A unit as it should be.
class Unit {
 public:
  explicit Unit(const Case& asked)
      : layer_(layer_of(asked)),
        world_(asked.world_size),
        group_(asked.options.value("group", 0)) {}

  Did call(char what) {
    Did did;
    if (what == 's' || what == 'S' || what == 'c') start(phase_of(what), did);
    if (what == 'f' || what == 'F') {
      start(phase_of(what), did);
      finish(did);
      parts_ = false;
    }
    if (what == 'r' || (what == 'k' && state_ != "sharded")) {
      finish(did);
      parts_ = what == 'k';
      state_ = "sharded";
    }
    if (what == 'u') factor_ *= 2;
    did.state = state_;
    if (state_ != "sharded") did.held = layer_.bytes();
    if (parts_) did.held += layer_.bytes() / group_;
    return did;
  }
  bool is_readable() const { return state_ == "unsharded"; }
  float gathered() const { return gathered_; }
  const Layer& layer() const { return layer_; }

 private:
  void start(const std::string& phase, Did& did) {
    if (state_ != "sharded") return;
    did.started = gathers_of(layer_, unit_name(), phase, parts_ ? group_ : world_);
    waiting_.assign(layer_.flats.size(), unit_name() + "/" + phase);
    state_ = "unsharding";
    gathered_ = factor_;
  }
  void finish(Did& did) {
    did.waited = waiting_;
    waiting_.clear();
    state_ = "unsharded";
  }

  Layer layer_;
  int world_, group_;
  std::string state_ = "sharded";
  std::vector<std::string> waiting_;
  bool parts_ = false;
  float factor_ = 1, gathered_ = 1;
};

Did seen_of(const Observations& seen, int rank, const std::string& key) {
  const Json& attempt = seen.at(rank, key);
  Did did;
  if (attempt.at("type") != "none") {
    did.error = fmt::format("{} \"{}\"", attempt.at("type").get<std::string>(),
                            attempt.at("what").get<std::string>());
  }
  did.started = collectives_of(seen.at(rank, key + " started"));
  const std::string begin = "wait all_gather ";
  for (const std::string& line : seen.lines(rank, key + " events")) {
    if (line.starts_with(begin)) did.waited.push_back(line.substr(begin.size()));
  }
  did.state = seen.text(rank, key + " state");
  did.held = seen.bytes(rank, key + " memory", "UNSHARDED_PARAM");
  return did;
}

/// As `did`, if every collective were labeled as one of forward.
Did all_forward(Did did) {
  for (auto* lines : {&did.started, &did.waited}) {
    for (std::string& line : *lines) {
      for (const std::string phase : {"/backward", "/checkpoint"}) {
        const std::size_t at = line.find(phase);
        if (at != std::string::npos) line.replace(at, phase.size(), "/forward");
      }
    }
  }
  return did;
}

/// What went wrong in the first call that did something else. `whole`: its gathers, if
/// they were over all ranks.
std::vector<Cause> causes_of(const Did& seen, const Did& right, const Layer& layer,
                             const Json& options, const std::vector<std::string>& whole) {
  const int group = options.value("group", 0);
  const auto sorted = [](std::vector<std::string> lines) {
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  const auto less = sorted(seen.started), all = sorted(right.started);
  const bool differs = less != all;
  const std::int64_t excess = seen.held - right.held;
  const bool lacks_one_part =
      group > 1 && std::any_of(layer.flats.begin(), layer.flats.end(), [&](const Tensor& flat) {
        return -excess * group == flat.numel() * static_cast<std::int64_t>(size_of(flat.dtype()));
      });
  return {{group > 1 && seen.error.find("but `in` is float32") != std::string::npos,
           "A part that you kept is float32, and full() is not: give a part the dtype of full()"},
          {!seen.error.empty(), kThrownCause},
          {!differs && seen.started != right.started,
           "You gathered the flat parameters in a different order from the unit's"},
          {differs && all_forward(seen).started == all_forward(right).started,
           "You labeled a gather with a phase other than the one passed to the call"},
          {group > 1 && differs && seen.started == whole,
           "Parts were kept, but you gathered over all ranks instead of the subgroup"},
          {right.started.empty() && !seen.started.empty(),
           "You gathered once more: a unit that is gathered or in flight is not started again"},
          {!less.empty() && less.size() < all.size() &&
               std::includes(all.begin(), all.end(), less.begin(), less.end()),
           "You did not gather every flat parameter: gather each, frozen or not, in every phase"},
          {!differs && right.state == "unsharded" && group > 1 && excess == layer.bytes() / group,
           "You still hold the parts beside the full parameters: drop them in finish_unshard()"},
          {right.state == "sharded" && seen.state == "sharded" && right.held > 0 && seen.held == 0,
           "You kept no parts: this call keeps them of every unit, frozen or not"},
          {!differs && right.state == "sharded" && lacks_one_part,
           "You kept no part of one flat parameter: keep one of each, frozen or not"},
          {right.state == "sharded" && seen.state != "sharded" && seen.held == layer.bytes() &&
               (group == 1 || options.contains("keep")),
           "You followed the unit's options in this call: only the hook after forward does"},
          {seen.started.empty() && right.state != "sharded" && seen.state == "sharded",
           "You did not gather a sharded unit: this call gathers every one, frozen or kept"},
          {right.state == "sharded" && group > 1 && excess == layer.bytes() / group,
           "You still hold the parts after reshard(): drop them in every state"},
          {!differs && seen.waited.size() < right.waited.size(),
           "You did not wait for every gather that was in flight"},
          {right.state == "unsharded" && seen.state == "unsharding" && right.started.empty(),
           "You set the state although there was nothing to start: an unsharded unit stays "
           "unsharded"},
          {seen.started.empty() && !right.started.empty() && seen.state == right.state,
           "You gathered nothing: the full parameters were freed, so they are gathered again"}};
}

}  // namespace

void judge_calls(const std::string& step, const Setup& setup) {
  const Observations& seen = run("calls", setup);
  const auto calls = seen.asked().options.value("calls", std::string());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Unit unit(seen.asked());
    std::vector<std::string> observed, expected, forward;
    std::map<std::size_t, float> gathered;  // after which call, and what
    std::vector<Cause> causes;              // of the first line that is wrong
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::string key = std::to_string(i);
      const Did right = unit.call(calls[i]);
      expected.push_back(line_of(calls[i], right));
      forward.push_back(line_of(calls[i], all_forward(right)));
      if (!seen.has(rank, key)) continue;  // the call before has thrown
      const Did did = seen_of(seen, rank, key);
      observed.push_back(line_of(calls[i], did));
      if (observed[i] != expected[i] && causes.empty()) {
        causes =
            causes_of(did, right, unit.layer(), seen.asked().options,
                      gathers_of(unit.layer(), unit_name(), phase_of(calls[i]), seen.world_size()));
      }
      if (!unit.is_readable()) continue;
      gathered[i] = unit.gathered();
    }
    causes.insert(causes.begin(),
                  {observed == forward && forward != expected,
                   "You did not pass the phase on: every gather is labeled forward"});
    Check check(step,
                "from every state, each call does only what is missing: two calls of a half "
                "gather once, and reshard frees everything",
                seen);
    check.at(rank, unit_name()).equal("what the calls did", observed, expected, causes);
    for (const auto& [i, factor] : gathered) {
      const std::string key = fmt::format("{} full", i);
      if (!seen.has(rank, key + ".0")) continue;
      Check values(step, "an unsharded unit holds the values its shards had when it was gathered",
                   seen);
      values.at(rank, unit_name(), fmt::format("after call {}, {}", i + 1, name_of_call(calls[i])));
      check_values(values, seen, rank, key, unit.layer(), factor);
    }
  }
}

void judge_failure(const std::string& step, const std::string& call, const Setup& setup) {
  const Observations& seen = run("calls", setup);
  const std::string last =
      std::to_string(seen.asked().options.value("calls", std::string()).size() - 1);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check(step,
                "if another rank fails before a gather has ended, the call that ends it throws",
                seen);
    const Json& attempt = seen.at(rank, last);
    check.at(rank, unit_name())
        .that(attempt.at("type") == "Error" &&
                  attempt.at("what").get<std::string>().find("another rank has failed") == 0,
              call + " returned although another rank had failed", "the error of Work::wait()",
              {{attempt.at("type") == "none",
                "You left a Work to its destructor, which waits but cannot throw: call wait() on "
                "every Work"}});
  }
}

}  // namespace fsdp::graded
