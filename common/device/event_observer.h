/// @file
/// @ingroup device
/// EventObserver: sees a rank's events whether or not a trace records them.
#pragma once

#include "base/trace.h"

namespace fsdp {

/// Called for every event of a thread as it happens, before the trace records it (if it does). For
/// instruments that must not depend on the trace: a trace can be off.
class EventObserver {
 public:
  virtual ~EventObserver() = default;
  virtual void on_event(const Event& event) = 0;
};

/// Observes this thread while it lives. A thread has one observer at most.
class EventObserverScope {
 public:
  /// @throws Error if this thread has an observer already
  explicit EventObserverScope(EventObserver& observer);
  ~EventObserverScope();
  EventObserverScope(const EventObserverScope&) = delete;
  EventObserverScope& operator=(const EventObserverScope&) = delete;
};

}  // namespace fsdp
