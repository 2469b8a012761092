/// @file
/// @ingroup base
/// The event stream of a rank. One trace, many readers: tests, the timeline picture and the
/// estimator all look at the same events. Only given code writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// What a collective is for; with the unit's name it labels the call everywhere.
enum class Phase { none, init, forward, backward, gradient, optimizer, loss, checkpoint };
std::string_view name_of(Phase phase);

/// Says which unit issued a collective, and why. Equal on all ranks, and checked to be.
struct Label {
  std::string unit;
  Phase phase = Phase::none;
  friend bool operator==(const Label&, const Label&) = default;
};
/// "blocks.0/forward"; an empty unit or phase leaves its half and the slash out.
std::string to_string(const Label& label);

enum class EventKind {
  issue,           ///< a collective was started           (name = operation)
  wait,            ///< its Work was waited for             (name = operation)
  alloc,           ///< a unit's storage got its bytes      (name = kind, in lower case)
  free,            ///< … and gave them back
  forward_begin,   ///< a unit's own computation begins: after its pre-forward hooks
  forward_end,     ///< … ends: before its post-forward hooks
  backward_begin,  ///< after its pre-backward hooks
  backward_end,    ///< before its full-backward hooks
  step,            ///< an optimizer step
};
std::string_view name_of(EventKind kind);

/// One event. `time` is the rank's virtual clock in picoseconds when one runs, else nanoseconds of
/// a monotonic clock since the trace began; tests never look at the latter.
struct Event {
  EventKind kind;
  std::string unit;
  std::string name;
  Phase phase = Phase::none;
  std::int64_t nbytes =
      0;  ///< collective: bytes this rank receives; alloc/free: bytes of the block
  std::int64_t sequence = -1;
  std::int64_t time = 0;
  std::int64_t duration = 0;  ///< wait: how long it blocked; step: how long it took, until `time`
  int ranks = 0;              ///< collective: how many take part
};
/// "issue all_gather blocks.0/forward", "alloc unsharded_param blocks.0", …: what tests compare.
std::string to_string(const Event& event);

/// The events of one rank, in the order they happened. Touched by that rank's thread only.
class Trace {
 public:
  /// Recording is off until asked for: a long training must not grow without bound.
  void set_recording(bool on) { recording_ = on; }
  bool is_recording() const { return recording_; }
  void record(Event event);
  const std::vector<Event>& events() const { return events_; }
  void clear() { events_.clear(); }
  /// Events as text, keeping only the given kinds (all when empty).
  std::vector<std::string> lines(const std::vector<EventKind>& kinds = {}) const;

 private:
  bool recording_ = false;
  std::vector<Event> events_;
};

}  // namespace fsdp
