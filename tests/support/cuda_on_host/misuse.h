/// @file
/// What a wrong program gets from the stand-in.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace cuda_on_host {

/// A mistake of the program that a card would not report, or not every time. Names the kernel,
/// block and barrier, or the stream and event. The first one is kept: from then on every call
/// throws it.
class Misuse : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws a Misuse, and keeps it. Not for code that runs in a kernel's thread: see fail_thread().
[[noreturn]] void fail_with(const std::string& message);

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  fail_with(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace cuda_on_host
