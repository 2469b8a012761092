#include "io/output_folder.h"

#include "base/check.h"
#include "io/file_io.h"
#include "io/write_lock.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <map>
#include <random>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = ".unshard";
constexpr std::string_view kRemedy =
    "nothing was changed: give a folder that is absent, empty or an earlier output of this "
    "program, or move it away";

fs::path with_suffix(fs::path path, std::string_view suffix) {
  path += suffix;
  return path;
}

fs::path old_of(const fs::path& folder) { return with_suffix(resolved(folder), ".old"); }

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

// In alphabetical order, so that an error names the same file every time.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    names.push_back(each->path().filename().string());
  }
  if (error) {
    throw InputError(
        fmt::format("{}: cannot be listed: {}; give another folder, or change its "
                    "permissions",
                    folder.string(), error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_absent_or_empty(const fs::path& folder) {
  std::error_code ignored;
  if (!is_there(folder)) return true;
  return fs::is_directory(folder, ignored) && names_in(folder).empty();
}

bool is_plain_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(path, ignored));
}

bool is_marked(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(folder, ignored)) && is_plain_file(folder / kMark);
}

// What the mark says of a file: its length, and a checksum of its first MiB. Enough to see that
// somebody has put another file in its place, and little to read.
std::string description_of(const fs::path& path) {
  constexpr std::uint64_t kBeginning = std::uint64_t{1} << 20;
  const File file = File::open_to_read(path);
  std::string text(std::min(file.nbytes(), kBeginning), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size());
  return fmt::format("{} {:08x}", file.nbytes(), crc);
}

// The lines of a mark are "id <hex>" and "file <nbytes> <crc32> <name>".
std::map<std::string, std::string> listed_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  std::istringstream mark(read_text(folder / kMark));
  for (std::string word, nbytes, crc, name; mark >> word;) {
    if (word == "file") mark >> nbytes >> crc;
    std::getline(mark >> std::ws, name);
    if (word == "file") files[name] = fmt::format("{} {}", nbytes, crc);
  }
  return files;
}

// Why a folder is not ours to replace; "" if it is.
std::string why_foreign(const fs::path& folder) {
  std::error_code ignored;
  if (!is_there(folder)) return "";
  if (!fs::is_directory(fs::symlink_status(folder, ignored))) return "is not a folder";
  const std::vector<std::string> names = names_in(folder);
  const bool marked = is_marked(folder);
  const auto listed = marked ? listed_in(folder) : std::map<std::string, std::string>();
  for (const std::string& name : names) {
    if (marked && name == kMark) continue;
    const auto found = listed.find(name);
    if (found == listed.end() || !is_plain_file(folder / name)) {
      return fmt::format("holds {}, which is not part of an earlier output", name);
    }
    if (description_of(folder / name) != found->second) {
      return fmt::format("holds another {} than the one that was written there", name);
    }
  }
  return "";
}

bool is_mount_point(const fs::path& folder) {
  struct statx status {};
  return ::statx(AT_FDCWD, folder.c_str(), 0, STATX_BASIC_STATS, &status) == 0 &&
         (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

void remove_content(const fs::path& folder) {
  for (const std::string& name : names_in(folder)) {
    if (name != kMark) remove_tree(folder / name);
  }
}

// The mark goes last: what is left by a crash in the middle is still ours.
void remove_ours(const fs::path& folder) {
  remove_content(folder);
  remove_tree(folder);
}

std::string new_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// Completes the mark by what is in the folder now.
void list_files(const fs::path& folder) {
  const std::string id = save_id(folder);
  std::string mark = fmt::format("id {}\n", id.empty() ? new_id() : id);
  for (const std::string& name : names_in(folder)) {
    if (name == kMark || !is_plain_file(folder / name)) continue;
    mark += fmt::format("file {} {}\n", description_of(folder / name), name);
  }
  write_text_atomically(folder / kMark, mark);
}

}  // namespace

fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::weakly_canonical(path, error);
  if (error || whole.is_relative()) whole = (fs::current_path() / path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

fs::path temporary_of(const fs::path& folder) { return with_suffix(resolved(folder), ".tmp"); }

fs::path existing_folder(const fs::path& folder) {
  const fs::path old = old_of(folder);
  return is_absent_or_empty(folder) && is_marked(old) ? old : folder;
}

std::string save_id(const fs::path& temporary) {
  if (!is_marked(temporary)) return "";
  std::istringstream mark(read_text(temporary / kMark));
  std::string word, id;
  mark >> word >> id;
  return word == "id" ? id : "";
}

void check_folder_is_ours(const fs::path& folder) {
  const fs::path target = resolved(folder);
  if (is_mount_point(target)) {
    throw InputError(
        fmt::format("{}: is a mount point, which cannot be replaced; give a folder "
                    "inside it",
                    target.string()));
  }
  const std::string why = why_foreign(target);
  if (!why.empty()) throw InputError(fmt::format("{}: {}; {}", target.string(), why, kRemedy));
  for (const fs::path& beside : {temporary_of(target), old_of(target)}) {
    if (is_absent_or_empty(beside) || is_marked(beside)) continue;
    throw InputError(
        fmt::format("{}: is in the way and was not made by this program; move it away, or give "
                    "another folder than {}",
                    beside.string(), target.string()));
  }
  const std::string old_why = why_foreign(old_of(target));
  if (!old_why.empty()) {
    throw InputError(fmt::format("{}: {}; {}", old_of(target).string(), old_why, kRemedy));
  }
}

void restore_folder(const fs::path& folder) {
  const fs::path old = old_of(folder);
  if (!is_there(old) || !why_foreign(old).empty()) return;
  // After a crash between the two renames of publish_folder() the old one is the only whole one.
  if (is_absent_or_empty(folder) && is_marked(old)) {
    rename_path(old, resolved(folder));
  } else if (why_foreign(resolved(folder)).empty()) {
    remove_ours(old);
  }
}

void clear_temporary(const fs::path& folder) {
  const fs::path temporary = temporary_of(folder);
  const bool is_ours = is_absent_or_empty(temporary) || is_marked(temporary);
  if (is_there(temporary) && is_ours && lock_for_writing(temporary)) remove_ours(temporary);
  unlock_for_writing(temporary);
}

fs::path begin_folder(const fs::path& folder) {
  const fs::path target = resolved(folder);
  check_folder_is_ours(target);
  fs::path temporary = temporary_of(target);
  const bool is_locked = lock_for_writing(temporary);
  // The lock of a folder that has just been renamed from `temporary`: old ones are being removed.
  if (!is_locked || is_locked_for_writing(target)) {
    if (is_locked) clear_temporary(target);
    throw InputError(fmt::format(
        "{}: is being written by another process; wait until it has ended, or give another folder",
        target.string()));
  }
  restore_folder(target);
  remove_content(temporary);  // the folder itself has the lock
  const std::string mark = fmt::format("id {}\n", new_id());
  File::create(temporary / kMark).write(std::as_bytes(std::span(mark)));
  return temporary;
}

void publish_folder(const fs::path& temporary, const fs::path& folder) {
  const fs::path target = resolved(folder);
  list_files(temporary);  // and syncs the folder
  const std::string why = why_foreign(target);
  if (!why.empty()) throw InputError(fmt::format("{}: {}; {}", target.string(), why, kRemedy));
  restore_folder(target);
  const fs::path old = old_of(target);
  if (!is_absent_or_empty(target)) rename_path(target, old);
  rename_path(temporary, target);
  sync_to_disk(target.parent_path());
  if (is_there(old) && is_marked(old)) remove_ours(old);
  unlock_for_writing(temporary);
}

FolderClaim::FolderClaim(const fs::path& folder) : folder_(resolved(folder)) {
  begin_folder(folder_);
}

FolderClaim::~FolderClaim() {
  try {
    clear_temporary(folder_);
  } catch (const Error&) {  // what stays is cleared by the next begin_folder()
  }
}

}  // namespace fsdp::io
