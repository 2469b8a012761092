/// @file
/// @ingroup program
/// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fsdp::program {

struct FreeMemory {
  std::int64_t nbytes = 0;
  std::string limit;  ///< what sets it: "free memory of the machine", "memory limit of the …"
};

/// The least of what the machine has free, what the control groups of the process leave it, and
/// what RLIMIT_AS does. What the system does not tell is no limit.
/// @param root where proc/ and sys/ are looked for; a test has its own
FreeMemory free_memory(const std::filesystem::path& root = "/");

}  // namespace fsdp::program
