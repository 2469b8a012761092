/// @file
/// What a scenario has on one rank: the case, the group, and where to write what it saw.
#pragma once

#include "comm/process_group.h"
#include "graded/case.h"
#include "graded/event_log.h"
#include "graded/heap_watch.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::graded {

/// A scenario runs the student's code and records what happens. It compares nothing: that is the
/// judge's part, in another program. It runs once per rank.
///
///     void three_units(Recorder& stage) {
///       …
///       stage.note("numel", unit.padded_numel());
///       stage.events("forward", [&] { model(x); });     // what happened meanwhile
///       stage.values("y", y.data());                    // every bit
///     }
class Recorder {
 public:
  Recorder(const Case& asked, ProcessGroup& group, std::shared_ptr<EventLog> log);

  const Case& asked() const { return asked_; }
  ProcessGroup& group() { return group_; }
  /// For interfaces that want ownership.
  std::shared_ptr<ProcessGroup> shared_group() { return borrowed(group_); }
  int rank() const { return group_.rank(); }
  int world_size() const { return group_.size(); }
  std::uint64_t seed() const { return asked_.seed; }
  /// A number, text or list of the case; `otherwise` if the case has none of that name.
  template <class T>
  T option(const std::string& name, T otherwise) const {
    return asked_.options.value(name, std::move(otherwise));
  }

  /// Writes `value` down under `key`; a second note of the same key is an error.
  void note(const std::string& key, Json value);
  /// The elements of a float32, int32 or int64 tensor, all bits.
  void values(const std::string& key, const Tensor& tensor);
  /// Runs `call` and notes the log's lines of those kinds (all if none are named).
  void events(const std::string& key, const std::function<void()>& call,
              const std::vector<EventKind>& kinds = {});
  /// … and the collectives started: [{op, unit, phase, dtype, numel, received}].
  void collectives(const std::string& key, const std::function<void()>& call);
  /// Notes what the memory tracker counts now, by kind ("SHARDED_PARAM": bytes, …, "total").
  void memory(const std::string& key);
  /// Runs `call`, untraced; notes the breakdown at its peak, and the largest block taken from the
  /// heap besides, and the most held there at once (-1 where it cannot be watched, as when work is
  /// given to a device):
  /// {"peak": {…}, "before": {…}, "heap": bytes, "heap held": bytes}.
  void peak(const std::string& key, const std::function<void()>& call);
  /// Runs `call`; notes {"type": "none" | "Error" | "StorageError" | "InputError" | "other",
  /// "what": text}. What comes from another rank's failure, or from an unsolved step, goes through.
  void attempt(const std::string& key, const std::function<void()>& call);

  /// All that has happened on this rank.
  const EventLog& log() const { return *log_; }
  const Json& seen() const { return seen_; }

 private:
  const Case& asked_;
  ProcessGroup& group_;
  std::shared_ptr<EventLog> log_;
  Json seen_ = Json::object();
};

using Scenario = std::function<void(Recorder&)>;
using Scenarios = std::map<std::string, Scenario>;

/// The scenarios of one task; every tests/taskN/scenarios.cpp defines this for its runner.
Scenarios scenarios();

}  // namespace fsdp::graded
