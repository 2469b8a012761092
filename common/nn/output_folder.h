/// @file
/// @ingroup nn
/// A folder that appears whole or not at all, and in place of nothing that is not ours.
///
/// Writing a folder takes two calls; everything between them goes into the folder that the first
/// returns:
///
///     temporary = begin_folder(folder)     folder.tmp, empty but for its mark
///     publish_folder(temporary, folder)    rename folder -> folder.old   if there is one
///                                          rename folder.tmp -> folder   it is there, whole
///                                          remove folder.old
///
/// `folder` must be absent, empty, or an earlier output: everything in it is then listed in its
/// **mark**, the file `.unshard`, and is as it was when it was written. Anything else belongs to
/// somebody: it is never touched, and neither is a `.tmp` or `.old` without a mark.
///
/// A crash at any moment leaves the earlier folder or the new one, never a mix, and at worst a
/// `.tmp` or `.old` that the next begin_folder() clears. From the first call to the end of the
/// second the folder is locked: another process that begins it gets an error.
#pragma once

#include <filesystem>
#include <string>

namespace fsdp::nn {

/// Makes the temporary folder, beside `folder`, and locks it; missing parents are created, too. In
/// the same process it may begin anew. @return its path
/// @throws InputError naming what is in the way, or that another process is writing the folder, and
///         the remedy.
std::filesystem::path begin_folder(const std::filesystem::path& folder);
/// Renames the complete folder `temporary` to `folder`. Its files have been synced.
/// @throws InputError if something that is not ours has come in the way since.
void publish_folder(const std::filesystem::path& temporary, const std::filesystem::path& folder);
/// `folder`, or what a crash in the middle of replacing it left as `folder`.old; `folder` if
/// neither is there.
std::filesystem::path existing_folder(const std::filesystem::path& folder);

/// Throws InputError if `folder` cannot be written by begin_folder() for what is there already, and
/// changes nothing.
void check_folder_is_ours(const std::filesystem::path& folder);
/// Keeps `folder` for this process as long as it lives: nobody else can begin it.
class FolderClaim {
 public:
  /// Tries whether `folder` can be written, by beginning it.
  /// @throws InputError or Error naming the path and what is wrong.
  explicit FolderClaim(const std::filesystem::path& folder);
  /// Clears what was not published.
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  std::filesystem::path folder_;
};

/// Puts a `.old` that a crash left back in its place if `folder` is missing; removes it if not.
void restore_folder(const std::filesystem::path& folder);
/// Removes a folder.tmp of ours, or an empty one. Another one stays, and so does one that another
/// process is writing.
void clear_temporary(const std::filesystem::path& folder);

/// Where begin_folder(folder) writes.
std::filesystem::path temporary_of(const std::filesystem::path& folder);
/// The id that begin_folder() drew for what is written into `temporary`: no other folder has it.
/// Empty without a mark.
std::string save_id(const std::filesystem::path& temporary);
/// `path` without ".", "..", links and a last "/": the name to put a suffix to.
std::filesystem::path resolved(const std::filesystem::path& path);

}  // namespace fsdp::nn
