/// @file
/// Runs the real programs as a user does: arguments in, exit code and text out.
#pragma once

#include "support/temporary_folder.h"

#include <sys/types.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::testing {

struct Finished {
  int code;  ///< of exit(); -signal if a signal ended it
  std::string out, err;
};

std::string contents(const std::filesystem::path& path);

/// Runs a shell's command line to its end. `out` is empty if the command redirects it.
Finished run_command(const TemporaryFolder& folder, const std::string& command);

/// A program that runs beside the test, which reads what it prints.
class Child {
 public:
  /// The error stream goes to `errors`. Signals have their default effect in it.
  Child(const std::vector<std::string>& words, const std::filesystem::path& errors);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// The next line without its end; "" at the end of the output.
  std::string line();
  /// Reads until a line contains `part`. @throws if the output ends before.
  std::string line_with(const std::string& part);
  std::string rest();
  void close_output();
  void signal(int number) const;
  /// Waits for its end: the exit code, or -signal.
  int wait();

 private:
  pid_t process_ = -1;
  std::FILE* output_ = nullptr;
};

}  // namespace fsdp::testing
