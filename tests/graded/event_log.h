/// @file
/// What happened on one rank, told by who did it and not by who says so.
#pragma once

#include "base/trace.h"
#include "comm/process_group.h"
#include "device/event_observer.h"
#include "nn/module.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::graded {

/// A collective that a rank has started.
struct CollectiveRecord {
  CollectiveOp op;
  Label label;
  DType dtype;
  std::int64_t numel;           ///< as in Collective
  std::int64_t received_bytes;  ///< as received_bytes() counts them
};

/// The events of a rank in the order they happened, in an object that no submission can reach:
///
///     issue, wait         from the backend: the start of a collective, the wait() of its Pending
///     forward, backward   from the module calls themselves
///     alloc, free, step   from the library, whether or not a trace records
///
/// It is written in every run and only ever grows. Overlap is judged by it; the trace, which a
/// submission can reach, must tell the same wherever it records.
class EventLog : public EventObserver, public nn::CallObserver {
 public:
  struct Line {
    EventKind kind;
    std::string text;  ///< as to_string(Event) has it
    bool in_trace;     ///< the trace records it too
  };

  /// `traced`: whether the trace of this thread's context records.
  explicit EventLog(bool traced) : context_(Context::current()), traced_(traced) {}

  void on_event(const Event& event) override;
  void on_state(nn::Module& module, nn::CallState state) override;
  /// The backend of one of `ranks` ranks starts a collective, or has waited for it.
  void on_issue(const Collective& call, int ranks);
  void on_wait(const Collective& call);

  /// From here on, until another call.
  void set_traced(bool traced) { traced_ = traced; }
  bool is_traced() const { return traced_; }
  /// So that the next lines take no large block from the heap.
  void reserve(std::size_t more) {
    lines_.reserve(lines_.size() + more);
    collectives_.reserve(collectives_.size() + more);
  }

  const std::vector<Line>& lines() const { return lines_; }
  /// All that were started, in order.
  const std::vector<CollectiveRecord>& collectives() const { return collectives_; }
  /// Where the trace tells something else, as sentences; empty if it nowhere does.
  std::string contradiction(const Trace& trace) const;

 private:
  void add(const Event& event);
  void add(EventKind kind, const Collective& call);
  const std::string& name_of(const nn::Module& module);

  const Context& context_;
  bool traced_;
  std::vector<Line> lines_;
  std::vector<CollectiveRecord> collectives_;
  // The unit name a module was first seen with: one that it is given later hides nothing.
  std::map<std::pair<const nn::Module*, std::string>, std::string> names_;
};

/// Writes what `inner` starts and what is waited for to `log`, and so for groups split off from it.
std::shared_ptr<Backend> make_logged(std::shared_ptr<Backend> inner, std::shared_ptr<EventLog> log);

}  // namespace fsdp::graded
