/// @file
/// @ingroup nn
/// Which process writes a folder. Only output_folder.cpp uses it.
#pragma once

#include <filesystem>

namespace fsdp::nn {

/// Makes `folder` if it is not there, and locks it for this process. The lock belongs to the folder
/// itself, so it follows a rename; the kernel releases it when the process dies, however it dies.
/// Locking it again is allowed. @return false if another process holds it
bool lock_for_writing(const std::filesystem::path& folder);
/// Releases what lock_for_writing(folder) locked, wherever that folder is now.
void unlock_for_writing(const std::filesystem::path& folder);
/// Whether another process, or this one under another name, holds the lock of `folder`.
bool is_locked_for_writing(const std::filesystem::path& folder);

}  // namespace fsdp::nn
