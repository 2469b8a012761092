/// @file
/// A process that is given a text and returns bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::graded {

struct ChildResult {
  std::vector<std::uint8_t> observations;  ///< what came through file descriptor 3, capped
  std::string errors;                      ///< what it wrote to standard error, capped
  int exit_code = -1;                      ///< -1: ended by `signal`
  int signal = 0;
  bool timed_out = false;   ///< it was killed: too long by the clock
  double used_seconds = 0;  ///< of processor time
};

/// Starts `command` with `input` on its standard input, and waits for it. Its descriptor 3 names a
/// pipe, but can be neither read nor written: it has to be opened anew (/proc/self/fd/3), which
/// printing cannot do, whatever it is made to print to. After `seconds` of
/// processor time, or six times that by the clock, it is killed with all it started.
ChildResult run_child(const std::vector<std::string>& command, const std::string& input,
                      int seconds);

}  // namespace fsdp::graded
