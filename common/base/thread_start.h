/// @file
/// @ingroup base
/// Starting threads, where the system may refuse some.
#pragma once

#include <functional>
#include <string_view>
#include <thread>
#include <vector>

namespace fsdp {

/// Starts `count` threads that run body(0) … body(count − 1), and appends them to `threads`.
///
/// If the system refuses one of them (RLIMIT_NPROC, a cgroup's pids.max, no address space for a
/// stack), calls `give_up`, which must make the threads started so far return. Then joins them and
/// throws an Error that reports the threads' `purpose` (e.g. "rank threads"), how many started, and
/// the remedy.
void start_threads(std::vector<std::thread>& threads, int count, std::string_view purpose,
                   std::string_view remedy, const std::function<void(int)>& body,
                   const std::function<void()>& give_up);

}  // namespace fsdp
