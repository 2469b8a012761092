/// @file
/// @ingroup nn
/// The seam at which initialisation can be put off.
#pragma once

#include "autograd/variable.h"
#include "tensor/init.h"

namespace fsdp::nn {

/// Is told of every parameter initialisation on this thread, in order, instead of it happening.
class InitObserver {
 public:
  virtual ~InitObserver() = default;
  /// `parameter` was just made on the current device and holds undefined values (on meta: none).
  /// Whoever implements this also decides what is drawn from the generator.
  virtual void on_initialise(const Variable& parameter, const InitSpec& spec) = 0;
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

/// What happens without an observer: a random parameter takes its words from the current
/// generator (on meta too: the generator must not depend on the device), then every element is set.
void initialise_now(const Variable& parameter, const InitSpec& spec);

}  // namespace fsdp::nn
