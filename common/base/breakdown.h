/// @file
/// @ingroup base
/// Breakdown: bytes by kind, and whose they are.
#pragma once

#include "base/types.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace fsdp {

/// The owner of bytes: unit and parameter, or the module whose forward made them.
struct Owner {
  std::string unit;
  std::string name;
};
std::string to_string(const Owner& owner);  ///< "unit blocks.0, parameter wq.weight"

/// Bytes by kind.
struct Breakdown {
  std::array<std::int64_t, kMemoryKinds> nbytes{};
  std::int64_t operator[](MemoryKind kind) const { return nbytes[static_cast<std::size_t>(kind)]; }
  std::int64_t& operator[](MemoryKind kind) { return nbytes[static_cast<std::size_t>(kind)]; }
  std::int64_t total() const;
  friend bool operator==(const Breakdown&, const Breakdown&) = default;
};

std::string to_string(const Breakdown& breakdown);  ///< "SHARDED_PARAM 64, TEMP 8": kinds held

}  // namespace fsdp
