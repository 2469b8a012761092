#include "io/write_lock.h"

#include "base/check.h"
#include "io/file_io.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <system_error>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;

// The kernel keeps locks per process, and so does this: begin_folder() returns a path, and the
// lock has to live until publish_folder() is called with it.
struct Locked {
  std::mutex mutex;
  std::map<fs::path, int> descriptors;
};

Locked& locked() {
  static Locked all;
  return all;
}

int open_folder(const fs::path& folder) {
  return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// A file system that knows no locks answers with another error: then nothing is locked.
bool is_refused(int descriptor, int kind) {
  return ::flock(descriptor, kind | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

bool is_still(int descriptor, const fs::path& folder) {
  struct stat open {
  }, there{};
  return ::fstat(descriptor, &open) == 0 && ::lstat(folder.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

}  // namespace

bool lock_for_writing(const fs::path& folder) {
  const std::lock_guard guard(locked().mutex);
  std::map<fs::path, int>& descriptors = locked().descriptors;
  if (const auto found = descriptors.find(folder); found != descriptors.end()) {
    if (is_still(found->second, folder)) return true;
    ::close(found->second);
    descriptors.erase(found);
  }
  for (;;) {
    create_folder(folder);
    const int descriptor = open_folder(folder);
    const int error = errno;
    if (descriptor < 0 && error == ENOENT) continue;  // another process has just renamed it
    FSDP_CHECK(descriptor >= 0, "{}: cannot be opened: {}", folder.string(),
               std::generic_category().message(error));
    if (is_refused(descriptor, LOCK_EX)) {
      ::close(descriptor);
      return false;
    }
    if (is_still(descriptor, folder)) {
      descriptors.emplace(folder, descriptor);
      return true;
    }
    ::close(descriptor);  // it was published between the two calls
  }
}

void unlock_for_writing(const fs::path& folder) {
  const std::lock_guard guard(locked().mutex);
  std::map<fs::path, int>& descriptors = locked().descriptors;
  if (const auto found = descriptors.find(folder); found != descriptors.end()) {
    ::close(found->second);
    descriptors.erase(found);
  }
}

bool is_locked_for_writing(const fs::path& folder) {
  const int descriptor = open_folder(folder);
  if (descriptor < 0) return false;
  const bool is_locked = is_refused(descriptor, LOCK_SH);
  ::close(descriptor);
  return is_locked;
}

}  // namespace fsdp::io
