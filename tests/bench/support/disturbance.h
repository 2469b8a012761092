/// @file
/// A machine on which something else runs, too.
#pragma once

#include <sys/types.h>

namespace fsdp::bench {

/// Confines this process, its threads to come included, to the first `count` of its cores.
/// @throws Error if it may use fewer.
void use_first_cores(int count);

/// A process that keeps the first core busy while this object lives. It takes half of that core
/// from whatever else runs there, and what the cores share with each other.
class BusyLoop {
 public:
  BusyLoop();
  ~BusyLoop();
  BusyLoop(const BusyLoop&) = delete;
  BusyLoop& operator=(const BusyLoop&) = delete;

 private:
  pid_t process_;
};

/// Seconds that `threads` threads need for a fixed number of multiplications in pieces of some ten
/// microseconds, each taken by whichever thread is free. Nobody waits for anybody before the end,
/// so this loses no more beside a BusyLoop than the machine's capacity does.
double seconds_of_independent_pieces(int threads);

}  // namespace fsdp::bench
