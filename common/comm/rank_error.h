/// @file
/// @ingroup comm
/// An error that says which rank it comes from.
#pragma once

#include <exception>

namespace fsdp {

/// Throws `error` again with "rank 1: " before its message, as an exception of the same type. The
/// errors of this library and the common ones of std are made anew (std::bad_alloc, which has no
/// message, as an Error). An exception of any other type is thrown as it is, and so are an Aborted,
/// which names its rank already, and a TodoError, which is not about a rank.
[[noreturn]] void rethrow_from_rank(int rank, const std::exception_ptr& error);

}  // namespace fsdp
