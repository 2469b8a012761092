/// @file
/// @ingroup program
/// How a program prints and how it ends: every failure is one sentence on the error stream and an
/// exit code that says whose fault it was.
#pragma once

#include "base/check.h"

#include <functional>
#include <string_view>

namespace fsdp::program {

// Exit codes besides 0. A signal that ends a program adds its number to 128, as shells do.
inline constexpr int kFailed = 1;      ///< something failed while running
inline constexpr int kWrongInput = 2;  ///< the command line, a configuration or a file is wrong
inline constexpr int kSignalled = 128;

/// The reader of the standard output has gone, as in `program | head -1`.
class OutputClosed : public Error {
 public:
  OutputClosed();
};

/// Of this release: "0.1.0". docs/changelog.md says what each changed.
std::string_view version();

/// Writes a line to the standard output at once.
/// @throws OutputClosed, or Error if it cannot be written (a full disk).
void print_line(std::string_view line);

/// Runs a program's body and returns its exit code. Every exception becomes a sentence that begins
/// with `name`; a closed output ends the program quietly with 141, as SIGPIPE would.
int run(const char* name, const std::function<int()>& body);

}  // namespace fsdp::program
