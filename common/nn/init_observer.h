/// @file
/// @ingroup nn
/// The place where initialization can be deferred.
#pragma once

#include "autograd/variable.h"
#include "tensor/init.h"

namespace fsdp::nn {

/// Replaces every parameter initialization on this thread: it is called instead, in order.
class InitObserver {
 public:
  virtual ~InitObserver() = default;
  /// `parameter` was just made on the current device and holds undefined values (on meta: none).
  /// The implementation also decides what is drawn from the generator.
  virtual void on_initialize(const Variable& parameter, const InitSpec& spec) = 0;
};

/// Installs `observer` on this thread.
class InitObserverScope {
 public:
  explicit InitObserverScope(InitObserver& observer);
  ~InitObserverScope();
  InitObserverScope(const InitObserverScope&) = delete;
  InitObserverScope& operator=(const InitObserverScope&) = delete;
  static InitObserver* current();

 private:
  InitObserver* previous_;
};

/// The initialization without an observer. A random parameter takes its words from the current
/// generator (on meta too: the generator must not depend on the device). Then every element is set.
void initialize_now(const Variable& parameter, const InitSpec& spec);

}  // namespace fsdp::nn
