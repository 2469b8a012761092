/// @file
/// @ingroup io
/// A folder that appears whole or not at all, and never replaces what is not ours.
///
/// To write a folder, make two calls. Between them, write into the folder that the first returns:
///
///     temporary = begin_folder(folder)     folder.tmp, empty except for its mark
///     publish_folder(temporary, folder)    rename folder -> folder.old   if it exists
///                                          rename folder.tmp -> folder   it exists, complete
///                                          remove folder.old
///
/// `folder` must be absent, empty, or an earlier output: its **mark**, the file `.unshard`, lists
/// everything in it, and nothing has changed since. Anything else is a user's and is never touched,
/// nor is a `.tmp` or `.old` without a mark.
///
/// A crash at any moment leaves the earlier folder or the new one, never a mix. At worst a `.tmp`
/// or `.old` stays, which the next begin_folder() clears. The folder is locked from the first call
/// to the end of the second: another process that begins it gets an error.
#pragma once

#include <filesystem>
#include <string>

namespace fsdp::io {

/// Makes the temporary folder, beside `folder`, and locks it. Creates missing parents. The same
/// process may begin again. @return its path
/// @throws InputError with the remedy, naming what is in the way, or if another process is writing
///         the folder.
std::filesystem::path begin_folder(const std::filesystem::path& folder);
/// Renames the complete folder `temporary` to `folder`. Its files have been synced.
/// @throws InputError if something that is not ours is in the way by now.
void publish_folder(const std::filesystem::path& temporary, const std::filesystem::path& folder);
/// `folder`. If it is missing because a crash interrupted its replacement: `folder`.old.
std::filesystem::path existing_folder(const std::filesystem::path& folder);

/// Throws InputError if begin_folder() cannot write `folder` because of what is in it. Changes
/// nothing.
void check_folder_is_ours(const std::filesystem::path& folder);
/// Keeps `folder` for this process while it lives: no other process can begin it.
class FolderClaim {
 public:
  /// Checks that `folder` can be written, by beginning it.
  /// @throws InputError or Error naming the path and what is wrong.
  explicit FolderClaim(const std::filesystem::path& folder);
  /// Clears what was not published.
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  std::filesystem::path folder_;
};

/// If a crash left a `.old`: renames it to `folder` if that is missing, else removes it.
void restore_folder(const std::filesystem::path& folder);
/// Removes a folder.tmp that is ours or empty, unless another process is writing it. Others stay.
void clear_temporary(const std::filesystem::path& folder);

/// Where begin_folder(folder) writes.
std::filesystem::path temporary_of(const std::filesystem::path& folder);
/// The unique id that begin_folder() drew for the content of `temporary`. Empty without a mark.
std::string save_id(const std::filesystem::path& temporary);
/// `path` without ".", "..", links and a last "/", ready for a suffix.
std::filesystem::path resolved(const std::filesystem::path& path);

}  // namespace fsdp::io
