/// @file
/// A process that is given a text and returns bytes.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
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

/// A program that is started once, and then runs commands for a judge (jail.py --stay): standard
/// input is a socket. For each command a message comes, its words with a NUL between two, and with
/// it three descriptors: its 0, its 1 and 2, and its 3. When it has ended the program answers with
/// its exit code, or minus its signal, and the seconds of processor time that it has used.
class ResidentJail {
 public:
  /// `command` starts it; without one there is none.
  explicit ResidentJail(std::vector<std::string> command) : command_(std::move(command)) {}
  ResidentJail(const ResidentJail&) = delete;
  ResidentJail& operator=(const ResidentJail&) = delete;
  ~ResidentJail() { end(); }

  bool is_there() const { return !command_.empty(); }
  /// Hands `words` over, and those descriptors. Starts the program if it does not run.
  void begin(const std::vector<std::string>& words, const std::array<int, 3>& descriptors);
  bool has_ended() const;  ///< whether the command has, or the program itself
  /// Waits for that, and says how. If the program itself has ended without an answer: how it did,
  /// and what it has printed, but never that all was well.
  void tell(ChildResult& result);
  void end();  ///< the program too; tell() says then what it says of a killed one

 private:
  void start();
  void reap(ChildResult& result);
  std::vector<std::string> command_;
  pid_t process_ = -1;  // -1: does not run
  int socket_ = -1;
  int errors_ = -1;  // what it prints itself
};

/// Starts `command` with `input` on its standard input, and waits for it. Its descriptor 3 names a
/// pipe, but can be neither read nor written: it has to be opened anew (/proc/self/fd/3), which
/// printing cannot do, whatever it is made to print to. After `seconds` of
/// processor time, or six times that by the clock, it is killed with all it started. With a `jail`
/// that one starts it, and sees to the processor time.
ChildResult run_child(const std::vector<std::string>& command, const std::string& input,
                      int seconds, ResidentJail* jail = nullptr);

}  // namespace fsdp::graded
