/// @file
/// @ingroup base
/// Errors. Everything that can go wrong throws fsdp::Error, in every build.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace fsdp {

/// What everything in the library throws: a sentence with the values in it, and the remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bytes were touched that are not there, or freed while somebody still needs them.
class StorageError : public Error {
 public:
  using Error::Error;
};

/// A configuration, token file, checkpoint or command line is wrong. Names file, field and remedy.
class InputError : public Error {
 public:
  using Error::Error;
};

/// Another rank failed, or the ranks disagree: this rank cannot go on. Carries the table of who
/// waits where (see comm/hang_report.h).
class Aborted : public Error {
 public:
  using Error::Error;
};

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fsdp

/// Throws Error with a formatted message unless `condition` holds. Stays on in release builds.
/// The message is a sentence a user can act on; its arguments are evaluated only on failure.
#define FSDP_CHECK(condition, ...)   \
  do {                               \
    if (!(condition)) [[unlikely]] { \
      ::fsdp::fail(__VA_ARGS__);     \
    }                                \
  } while (false)
