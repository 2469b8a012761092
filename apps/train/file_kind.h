/// @file
/// @ingroup train
/// What a file given as data is, if its first bytes say so.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace fsdp::train {

/// A format that begins with known bytes, and holds neither text nor tokens alone.
struct FileKind {
  std::string_view begin;
  const char* what;                                                ///< "a zip archive"
  const char* way_on;                                              ///< "unpack it first"
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();  ///< bytes of such a file
};

/// The kind of a file of `nbytes` that begins with `first`, which is all of it or 64 bytes and
/// more; null if it is none that is known.
const FileKind* kind_of(std::string_view first, std::uint64_t nbytes);

}  // namespace fsdp::train
