/// @file
/// @ingroup base
/// The event stream of a rank. One trace has many readers: tests, the timeline picture and the
/// estimator use the same events. Only given code writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// The purpose of a collective. With the unit's name it labels the call everywhere.
enum class Phase { none, init, forward, backward, gradient, optimizer, loss, checkpoint };
std::string_view name_of(Phase phase);

/// The unit that issued a collective, and its purpose. Checked to be equal on all ranks.
struct Label {
  std::string unit;
  Phase phase = Phase::none;
  friend bool operator==(const Label&, const Label&) = default;
};
/// "blocks.0/forward"; without a unit or a phase, only the other half, and no slash.
std::string to_string(const Label& label);

enum class EventKind {
  issue,           ///< a collective was started           (name = operation), or a copy
                   ///< between device and host             (copy_to_device, copy_to_host)
  wait,            ///< its Work was waited for             (name = operation)
  alloc,           ///< a unit's storage was allocated      (name = kind, in lower case)
  free,            ///< … or freed
  forward_begin,   ///< a unit's own computation begins: after its pre-forward hooks
  forward_end,     ///< … ends: before its post-forward hooks
  backward_begin,  ///< after its pre-backward hooks
  backward_end,    ///< before its full-backward hooks
  step,            ///< an optimizer step
};
std::string_view name_of(EventKind kind);

/// One event. `time` is the rank's virtual clock in picoseconds if there is one, else nanoseconds
/// of a monotonic clock since the trace began. Tests never use the latter.
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
  int ranks = 0;              ///< collective: number of ranks
  bool is_far = false;        ///< collective: on a virtual clock, between boxes
  std::int64_t ended = -1;    ///< wait: when the transfer ended, at `time` or before it; -1 = the
                              ///< backend does not know
  std::int64_t ready = 0;     ///< issue: on a virtual clock, when copies under way have filled the
                              ///< operands; it does not begin before
};
/// "issue all_gather blocks.0/forward", "alloc unsharded_param blocks.0", …: tests compare these.
std::string to_string(const Event& event);

/// The events of one rank, in order. Only that rank's thread uses it.
class Trace {
 public:
  /// Recording is off at first: in a long training, a trace must not grow without bound.
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
