/// @file
/// @ingroup io
/// The few system calls that checkpoints need, with errors that name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>

namespace fsdp::io {

/// Notified before every change to the file system that this folder's code makes on this thread:
/// "write step_2.tmp/a.safetensors", "sync …", "rename … …", "remove …", "create …". Tests use it
/// to check the order of syncs and renames, and to crash at each one of them.
class FileStepObserver {
 public:
  virtual ~FileStepObserver() = default;
  virtual void before_step(const std::string& what) = 0;
};

/// Installs `observer` on this thread.
class FileStepScope {
 public:
  explicit FileStepScope(FileStepObserver& observer);
  ~FileStepScope();
  FileStepScope(const FileStepScope&) = delete;
  FileStepScope& operator=(const FileStepScope&) = delete;

 private:
  FileStepObserver* previous_;
};

/// An open file, closed when destroyed. All functions throw Error with errno's text.
class File {
 public:
  /// Neither waits, whatever the path leads to. The second opens a pipe too, for read_on().
  /// @throws InputError if the file cannot be opened for reading, or is a folder, device or socket.
  static File open_to_read(const std::filesystem::path& path);
  static File open_to_read_on(const std::filesystem::path& path);
  /// Makes a new file, or empties an old one.
  static File create(const std::filesystem::path& path);
  /// Opens a file, or makes it, to write behind its first `nbytes` bytes, and drops all others.
  static File go_on(const std::filesystem::path& path, std::uint64_t nbytes);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  std::uint64_t nbytes() const;
  /// Fills `out` from byte `begin` on. @throws InputError if the file ends before.
  void read(std::uint64_t begin, std::span<std::byte> out) const;
  /// Reads on from where the last call ended, and returns how many bytes of `out` were filled:
  /// fewer than all only at the end. Works for pipes, which have no size and no position.
  /// @throws InputError if it is a pipe to which no program writes, or has written.
  std::size_t read_on(std::span<std::byte> out);
  void write(std::span<const std::byte> bytes);
  void sync();
  const std::filesystem::path& path() const { return path_; }

 private:
  File(std::filesystem::path path, int descriptor);

  std::filesystem::path path_;
  int descriptor_;
  bool is_silent_pipe_ = false;  // nothing was read from it yet
};

/// rename(2), and removal of a folder with its content. They notify the observer.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_tree(const std::filesystem::path& path);
void create_folder(const std::filesystem::path& path);

/// fsync of a file or folder. @throws Error with errno's text.
void sync_to_disk(const std::filesystem::path& path);
/// Writes a small text file through a temporary, synced and renamed.
void write_text_atomically(const std::filesystem::path& path, const std::string& text);

/// Writes what `from` holds, a part at a time, and syncs it.
/// @throws InputError if `from` cannot be read; a part of `to` may be there then.
void copy_synced(const std::filesystem::path& from, const std::filesystem::path& to);

/// The whole text of a file, or of a pipe until its other end is closed.
/// @throws InputError if it cannot be read, or is longer than `most` bytes.
std::string read_text(const std::filesystem::path& path,
                      std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace fsdp::io
