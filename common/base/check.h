/// @file
/// @ingroup base
/// Errors. Every failure throws fsdp::Error, in every build.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace fsdp {

/// Thrown by the whole library. The message has the values and the remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bytes were used without being allocated, or freed while in use.
class StorageError : public Error {
 public:
  using Error::Error;
};

/// A configuration, token file, checkpoint or command line is wrong. Names file, field and remedy.
class InputError : public Error {
 public:
  using Error::Error;
};

/// Another rank failed, or the ranks disagree, so this rank must stop. Contains the table of where
/// each rank waits (see comm/control_report.h).
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

/// Throws Error with a formatted message unless `condition` holds, in release builds too.
/// The message is a sentence a user can act on; its arguments are evaluated only on failure.
#define FSDP_CHECK(condition, ...)   \
  do {                               \
    if (!(condition)) [[unlikely]] { \
      ::fsdp::fail(__VA_ARGS__);     \
    }                                \
  } while (false)
