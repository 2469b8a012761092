/// @file
/// @ingroup device
/// EventObserver: sees the events of a rank whether or not a trace records them.
#pragma once

#include "base/trace.h"

namespace fsdp {

/// Is called for every event of a thread as it happens, before its trace (if that records). For
/// instruments that must not depend on the trace, which can be switched off.
class EventObserver {
 public:
  virtual ~EventObserver() = default;
  virtual void on_event(const Event& event) = 0;
};

/// Observes this thread while it lives. A thread has one observer, which cannot be replaced.
class EventObserverScope {
 public:
  /// @throws Error if this thread has an observer already
  explicit EventObserverScope(EventObserver& observer);
  ~EventObserverScope();
  EventObserverScope(const EventObserverScope&) = delete;
  EventObserverScope& operator=(const EventObserverScope&) = delete;
};

}  // namespace fsdp
