#include "io/file_io.h"

#include "base/check.h"
#include "base/printable.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;

thread_local FileStepObserver* step_observer = nullptr;

void announce(const char* verb, const fs::path& path, const fs::path& to = {}) {
  if (step_observer == nullptr) return;
  std::string what = fmt::format("{} {}", verb, path.string());
  if (!to.empty()) what.append(" ").append(to.string());
  step_observer->before_step(what);
}

std::string errno_text() { return std::generic_category().message(errno); }

// Linux writes at most 2 GiB a call; smaller pieces also let a test stop in the middle of a file.
constexpr std::size_t kMaxWrite = std::size_t{64} << 20;

// What open() would wait for, or never find the end of; "" for a file.
std::string_view kind_of(const struct stat& status) {
  if (S_ISDIR(status.st_mode)) return "folder";
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) return "device";
  if (S_ISSOCK(status.st_mode)) return "socket";
  return S_ISFIFO(status.st_mode) ? "pipe" : "";
}

// In a message. A path that is longer exists nowhere.
std::string in_message(const fs::path& path) { return printable(path.string(), PATH_MAX); }

}  // namespace

FileStepScope::FileStepScope(FileStepObserver& observer) : previous_(step_observer) {
  step_observer = &observer;
}
FileStepScope::~FileStepScope() { step_observer = previous_; }

File::File(fs::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      is_silent_pipe_(other.is_silent_pipe_) {}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File File::open_to_read(const fs::path& path) {
  File file = open_to_read_on(path);
  if (file.is_silent_pipe_) throw InputError(in_message(path) + ": is a pipe; give a file");
  return file;
}

File File::open_to_read_on(const fs::path& path) {
  struct stat status {};
  // Does not wait: a pipe may have no writer, and never get one.
  File file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const int error = errno;
  const bool is_open = file.descriptor_ >= 0;
  const bool is_known =
      (is_open ? ::fstat(file.descriptor_, &status) : ::stat(path.c_str(), &status)) == 0;
  const std::string_view kind = is_known ? kind_of(status) : "";
  file.is_silent_pipe_ = kind == "pipe";
  if (!kind.empty() && !file.is_silent_pipe_) {
    throw InputError(fmt::format("{}: is a {}; give a file", in_message(path), kind));
  }
  if (!is_open) {
    throw InputError(fmt::format("{}: cannot be read: {}", in_message(path),
                                 std::generic_category().message(error)));
  }
  return file;
}

File File::create(const fs::path& path) {
  announce("create", path);
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
  FSDP_CHECK(descriptor >= 0, "{}: cannot be written: {}", path.string(), errno_text());
  ::fcntl(descriptor, F_SETFL, 0);  // a full pipe is waited for
  return File(path, descriptor);
}

File File::go_on(const fs::path& path, std::uint64_t nbytes) {
  announce("cut", path);
  File file(path, ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666));
  FSDP_CHECK(file.descriptor_ >= 0, "{}: cannot be written: {}", path.string(), errno_text());
  FSDP_CHECK(
      file.nbytes() == nbytes || ::ftruncate(file.descriptor_, static_cast<off_t>(nbytes)) == 0,
      "{}: cannot be cut: {}", path.string(), errno_text());
  return file;
}

std::uint64_t File::nbytes() const {
  struct stat status {};
  FSDP_CHECK(::fstat(descriptor_, &status) == 0, "{}: {}", path_.string(), errno_text());
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read(std::uint64_t begin, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError(fmt::format("{}: {}", path_.string(), errno_text()));
    if (got == 0) {
      throw InputError(fmt::format("{}: ends at byte {}, {} bytes too early; the file is damaged",
                                   path_.string(), begin, out.size()));
    }
    out = out.subspan(static_cast<std::size_t>(got));
    begin += static_cast<std::uint64_t>(got);
  }
}

std::size_t File::read_on(std::span<std::byte> out) {
  constexpr int kPatience = 500;  // milliseconds until a program must have opened the other end
  pollfd wanted{.fd = descriptor_, .events = POLLIN, .revents = 0};
  bool has_waited = false;
  std::size_t filled = 0;
  while (filled < out.size()) {
    const ssize_t got = ::read(descriptor_, out.data() + filled, out.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {  // a pipe, whose writer has not written yet
      ::poll(&wanted, 1, -1);
      continue;
    }
    if (got < 0) throw InputError(fmt::format("{}: {}", path_.string(), errno_text()));
    if (got == 0 && is_silent_pipe_) {
      if (has_waited) {
        throw InputError(in_message(path_) +
                         ": is a pipe, and no program writes to it; give a file");
      }
      has_waited = ::poll(&wanted, 1, kPatience) == 0;  // otherwise it has, or came and left
      is_silent_pipe_ = has_waited;
      continue;
    }
    is_silent_pipe_ = false;
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

void File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    announce("write", path_);
    const ssize_t done = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMaxWrite));
    if (done < 0 && errno == EINTR) continue;
    FSDP_CHECK(done >= 0, "{}: cannot be written: {}", path_.string(), errno_text());
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void File::sync() {
  announce("sync", path_);
  FSDP_CHECK(::fsync(descriptor_) == 0, "{}: fsync: {}", path_.string(), errno_text());
}

void sync_to_disk(const fs::path& path) {
  announce("sync", path);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  FSDP_CHECK(descriptor >= 0, "{}: cannot be opened to sync it: {}", path.string(), errno_text());
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // Some file systems cannot sync folders and say EINVAL; they order renames by themselves.
  FSDP_CHECK(result == 0 || error == EINVAL, "{}: fsync: {}", path.string(),
             std::generic_category().message(error));
}

void rename_path(const fs::path& from, const fs::path& to) {
  announce("rename", from, to);
  FSDP_CHECK(std::rename(from.c_str(), to.c_str()) == 0, "{}: cannot be renamed to {}: {}",
             from.string(), to.string(), errno_text());
}

void remove_tree(const fs::path& path) {
  announce("remove", path);
  std::error_code error;
  fs::remove_all(path, error);
  FSDP_CHECK(!error, "{}: cannot be removed: {}", path.string(), error.message());
}

void create_folder(const fs::path& path) {
  announce("create", path);
  std::error_code error;
  fs::create_directories(path, error);
  FSDP_CHECK(!error && fs::is_directory(path), "{}: cannot make this folder: {}", path.string(),
             error ? error.message() : "a file of that name is in the way");
}

std::string read_text(const fs::path& path, std::size_t most) {
  File file = File::open_to_read_on(path);
  std::string text;
  // What it says of its size is where to begin; a pipe says nothing.
  std::size_t room = std::min<std::size_t>(file.nbytes(), most) + 1;
  for (std::size_t filled = 0;; room = std::max(2 * filled, std::size_t{4096})) {
    text.resize(room);
    filled += file.read_on(std::as_writable_bytes(std::span(text)).subspan(filled));
    if (filled > most) {
      throw InputError(
          fmt::format("{}: is longer than the {} bytes it may have; is it the right "
                      "file?",
                      path.string(), most));
    }
    if (filled < room) {
      text.resize(filled);
      return text;
    }
  }
}

void copy_synced(const fs::path& from, const fs::path& to) {
  File in = File::open_to_read(from);
  File out = File::create(to);
  std::vector<std::byte> part(std::size_t{1} << 16);
  while (const std::size_t filled = in.read_on(part)) out.write(std::span(part).first(filled));
  out.sync();
}

void write_text_atomically(const fs::path& path, const std::string& text) {
  fs::path temporary = path;
  temporary += ".tmp";
  {
    File file = File::create(temporary);
    file.write(std::as_bytes(std::span(text)));
    file.sync();
  }
  rename_path(temporary, path);
  sync_to_disk(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

}  // namespace fsdp::io
