#include "io/output_file.h"

#include "base/check.h"
#include "io/file_io.h"
#include "io/output_folder.h"

#include <algorithm>
#include <system_error>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;

}  // namespace

void check_file_is_ours(const fs::path& file, std::string_view mark) {
  constexpr std::uint64_t kBeginning = 4096;
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(file, ignored);
  if (!fs::exists(status)) return;
  if (!fs::is_regular_file(status)) {
    throw InputError(
        fmt::format("{}: is not a plain file; give the name of a file", file.string()));
  }
  const File there = File::open_to_read(file);
  std::string text(std::min(there.nbytes(), kBeginning), '\0');
  there.read(0, std::as_writable_bytes(std::span(text)));
  if (text.empty() || text.find(mark) != std::string::npos) return;
  throw InputError(
      fmt::format("{}: already exists and was not written by this program, so it was not changed; "
                  "give another name, or move it away",
                  file.string()));
}

void probe_file(const fs::path& file) {
  std::error_code ignored;
  if (!file.has_filename() || fs::is_directory(file, ignored)) {
    throw InputError(fmt::format("{}: is a folder; give the name of a file in it", file.string()));
  }
  const fs::path target = resolved(file);
  const fs::path temporary = temporary_of(target);
  check_file_is_ours(target);
  check_file_is_ours(temporary);
  create_folder(target.parent_path());
  File::create(temporary);
  remove_tree(temporary);
}

void write_output_file(const fs::path& file, const std::string& text) {
  const fs::path target = resolved(file);
  FSDP_CHECK(text.substr(0, 4096).find(kFileMark) != std::string::npos,
             "{}: the new text does not begin with \"{}\", the mark by which the program "
             "recognizes its own files",
             target.string(), kFileMark);
  check_file_is_ours(target);
  check_file_is_ours(temporary_of(target));
  write_text_atomically(target, text);
}

}  // namespace fsdp::io
