/// @file
/// @ingroup io
/// Locks a folder for one writing process. Only output_folder.cpp uses it.
#pragma once

#include <filesystem>

namespace fsdp::io {

/// Makes `folder` if it does not exist, and locks it for this process. The lock belongs to the
/// folder itself, so it survives a rename. The kernel releases it when the process dies, however it
/// dies. Relocking is allowed. @return false if another process holds it
bool lock_for_writing(const std::filesystem::path& folder);
/// Releases the lock of lock_for_writing(folder), wherever that folder is now.
void unlock_for_writing(const std::filesystem::path& folder);
/// Whether another process, or this one under another name, holds the lock of `folder`.
bool is_locked_for_writing(const std::filesystem::path& folder);

}  // namespace fsdp::io
