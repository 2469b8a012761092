/// @file
/// @ingroup program
/// SIGINT and SIGTERM as a wish that the program looks at when it can.
#pragma once

#include <signal.h>  // NOLINT(modernize-deprecated-headers): <csignal> need not have sigaction

namespace fsdp::program {

/// While one lives, the first SIGINT or SIGTERM is only noted, and a second one ends the process at
/// once with 128 + its number. A signal that was ignored when the program began stays ignored.
/// At most one lives at a time. Destroyed before anybody has looked at a signal, it lets the signal
/// take effect.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came, or 0.
  int poll();

 private:
  struct sigaction interrupt_before_ {};
  struct sigaction terminate_before_ {};
  bool was_seen_ = false;
};

/// "SIGINT", "SIGTERM", "SIGPIPE".
const char* name_of_signal(int number);

}  // namespace fsdp::program
