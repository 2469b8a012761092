/// @file
/// @ingroup comm
/// Errors that name the rank they come from.
#pragma once

#include <exception>
#include <string>

namespace fsdp {

/// Rethrows `error` with "rank 1: " before its message, as an exception of the same type. This
/// works for the errors of this library and the common ones of std (std::bad_alloc, which has no
/// message, becomes an Error). All others are rethrown unchanged. So are an Aborted, which names
/// its rank already, and a TodoError, which is not about a rank.
[[noreturn]] void rethrow_from_rank(int rank, const std::exception_ptr& error);

/// The message for a rank that has left its function by pthread_exit().
inline constexpr const char* kEndedThread =
    "it has ended its own thread by pthread_exit(); return from the rank's function, or throw";

/// The message of `error`.
std::string what_of(const std::exception_ptr& error);

/// The type of `error` by name, and an exception of that type with a message: how an error gets
/// from one process to another. If its type is none of those above, it arrives as a
/// std::runtime_error.
std::string type_of(const std::exception_ptr& error);
std::exception_ptr make_error(const std::string& type, const std::string& what);

}  // namespace fsdp
