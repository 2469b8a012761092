/// @file
/// @ingroup base
/// Starting threads where there may be too few of them to be had.
#pragma once

#include <functional>
#include <string_view>
#include <thread>
#include <vector>

namespace fsdp {

/// Starts `count` threads that run body(0) … body(count − 1), and appends them to `threads`.
///
/// If the system refuses one of them (RLIMIT_NPROC, a cgroup's pids.max, no address space for a
/// stack), calls `give_up`, which must make the ones already started return, joins those, and
/// throws an Error: which threads were wanted (`purpose`, e.g. "rank threads"), how many there are,
/// and the remedy.
void start_threads(std::vector<std::thread>& threads, int count, std::string_view purpose,
                   std::string_view remedy, const std::function<void(int)>& body,
                   const std::function<void()>& give_up);

}  // namespace fsdp
