#include "config/hugging_face/folder.h"

#include "base/check.h"
#include "base/printable.h"
#include "config/hugging_face/rows.h"

#include <fmt/format.h>

#include <climits>
#include <filesystem>
#include <system_error>

namespace fsdp::config::hugging_face {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& from, const char* why) {
  throw InputError(fmt::format("{}: {}", printable(from.string(), PATH_MAX), why));
}

std::string remark_on(const fs::path& file, const std::string& key) {
  if (const std::string meant = foreign::meant_by(rows(), key); !meant.empty()) {
    throw InputError(fmt::format("{}: unknown key \"{}\"; did you mean {}? If not, remove it",
                                 file.string(), printable(key), meant));
  }
  return fmt::format("{}: {}: is passed over, as by transformers, which does not know it",
                     file.string(), printable(key));
}

}  // namespace

Folder read_folder(const std::string& from, bool is_modeled) {
  const fs::path folder = from;
  std::error_code ignored;
  const bool is_file = fs::is_regular_file(folder, ignored);
  if (is_file && !is_modeled) refuse(from, "is a file; give the folder that it is in");
  const fs::path file = is_file ? folder : folder / "config.json";
  if (!fs::exists(file, ignored) && fs::exists(folder / "adapter_config.json", ignored)) {
    refuse(from,
           "is an adapter of PEFT without its model; merge them first (merge_and_unload(), then "
           "save_pretrained(NEW_FOLDER)), and give the new folder");
  }
  Folder read;
  io::HfNotes notes;
  read.model = io::read_hf_config(file, &notes);
  if (!is_modeled) read.extras = io::find_hf_extras(folder);
  for (const std::string& note : notes.others) {
    read.remarks.push_back(fmt::format("{}: {}", file.string(), note));
  }
  for (const std::string& key : notes.unknown) read.remarks.push_back(remark_on(file, key));
  return read;
}

}  // namespace fsdp::config::hugging_face
