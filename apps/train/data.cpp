#include "train/data.h"

#include "base/check.h"
#include "io/file_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

namespace fsdp::train {
namespace {

namespace fs = std::filesystem;

// llm.c's token files.
constexpr std::int32_t kMagic = 20240520;
constexpr std::int32_t kMagicLlama3 = 20240801;
constexpr std::int32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 256 * sizeof(std::int32_t);

[[noreturn]] void reject(const std::string& name, const std::string& what) {
  throw InputError(fmt::format("{}: {}", name, what));
}

std::int32_t first_int(const io::File& file) {
  std::int32_t value = 0;
  if (file.nbytes() >= sizeof value) file.read(0, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

void check_tokens(const std::vector<std::uint16_t>& tokens, const std::string& name,
                  std::int64_t vocabulary) {
  const auto outside = std::find_if(tokens.begin(), tokens.end(),
                                    [&](std::uint16_t token) { return token >= vocabulary; });
  if (outside == tokens.end()) return;
  const std::uint16_t largest = *std::max_element(tokens.begin(), tokens.end());
  reject(name, fmt::format("token {} at position {} is outside the vocabulary of {}; use "
                           "a model with a vocabulary (model.vocab_size) of {} or more, or make "
                           "the file anew",
                           *outside, outside - tokens.begin(), vocabulary, largest + 1));
}

std::vector<std::uint16_t> read_token_file(const io::File& file) {
  const std::string name = file.path().string();
  const std::uint64_t nbytes = file.nbytes();
  std::array<std::int32_t, 256> header{};
  if (nbytes < kHeaderBytes) {
    reject(name, fmt::format("has {} bytes, the header of a token file alone has {}; copy it again",
                             nbytes, kHeaderBytes));
  }
  file.read(0, std::as_writable_bytes(std::span(header)));
  if (header[0] != kMagic) {
    reject(name,
           fmt::format("is no token file: it begins with {}, not {}; set data.format to text, "
                       "or write the file with llm.c's scripts",
                       header[0], kMagic));
  }
  if (header[1] != kVersion) {
    reject(name, fmt::format("is a token file of version {}, only version {} is known; write it "
                             "again as uint16 tokens of version {}",
                             header[1], kVersion, kVersion));
  }
  const std::uint64_t present = (nbytes - kHeaderBytes) / sizeof(std::uint16_t);
  if (header[2] < 0 || present != static_cast<std::uint64_t>(header[2]) ||
      (nbytes - kHeaderBytes) % sizeof(std::uint16_t) != 0) {
    reject(name, fmt::format("says it has {} tokens, its {} bytes hold {}; copy it again",
                             header[2], nbytes, present));
  }
  std::vector<std::uint16_t> tokens(present);
  file.read(kHeaderBytes, std::as_writable_bytes(std::span(tokens)));
  return tokens;
}

}  // namespace

TokenData TokenData::from_text(std::string_view text, const std::string& name,
                               std::int64_t vocabulary) {
  std::vector<std::uint16_t> tokens(text.size());
  std::transform(text.begin(), text.end(), tokens.begin(),
                 [](char c) { return static_cast<std::uint16_t>(static_cast<unsigned char>(c)); });
  check_tokens(tokens, name, vocabulary);
  return {std::move(tokens), name, true};
}

void check_tokenizer(const TrainConfig& config, const TokenData& data) {
  if (config.from.empty() || !data.is_text()) return;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"}) {
    std::error_code ignored;
    const fs::path tokenizer = fs::path(config.from) / name;
    if (!fs::exists(tokenizer, ignored)) continue;
    throw InputError(
        fmt::format("{}: {}: is text, whose tokens are its bytes, but the model of model.from has "
                    "the tokenizer "
                    "{}; make a file of its tokens",
                    config.origin("data.path"), data.name(), tokenizer.string()));
  }
}

TokenData TokenData::open(const DataConfig& config, std::int64_t vocabulary) {
  if (config.path.empty()) {
    throw InputError("data.path: nothing to train on; give a text file, a folder or a token file");
  }
  const fs::path path = config.path;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    std::error_code ignored;
    throw InputError(fmt::format("data.path: {}: no such file or folder (looked for it from {})",
                                 config.path, fs::current_path(ignored).string()));
  }
  if (error) {
    throw InputError(fmt::format("data.path: {}: {}; give a file or folder that you may read",
                                 config.path, error.message()));
  }
  if (status.type() == fs::file_type::character || status.type() == fs::file_type::block) {
    throw InputError(
        fmt::format("data.path: {}: is a device, whose text may have no end; give a "
                    "file, a folder or a pipe",
                    config.path));
  }
  if (fs::is_directory(status)) {
    if (config.format == "tokens")
      reject(config.path, "is a folder; data.format tokens needs a file");
    return from_text(source_text(path), config.path, vocabulary);
  }
  const io::File file = io::File::open_to_read(path);
  const std::int32_t magic = first_int(file);
  if (config.format == "auto" && magic == kMagicLlama3) {
    reject(config.path,
           "holds uint32 tokens (llm.c's llama3 format); only uint16 is supported, so "
           "write it with a vocabulary of at most 65536");
  }
  if (config.format == "text" || (config.format == "auto" && magic != kMagic)) {
    return from_text(io::read_text(path), config.path, vocabulary);
  }
  std::vector<std::uint16_t> tokens = read_token_file(file);
  check_tokens(tokens, config.path, vocabulary);
  return {std::move(tokens), config.path, false};
}

std::string source_text(const fs::path& folder) {
  static const std::set<std::string> kinds = {".md", ".h",    ".cpp",   ".py",
                                              ".sh", ".toml", ".cmake", ".txt"};
  std::vector<fs::path> files;
  const fs::recursive_directory_iterator end;
  std::error_code error;
  fs::path at = folder;  // where an error happened: the iterator itself does not tell
  for (fs::recursive_directory_iterator it(folder, error); !error && it != end;
       it.increment(error)) {
    at = it->path();
    const std::string name = at.filename().string();
    std::error_code dangling;  // a link to nowhere is neither
    if (it->is_directory(dangling) && (name.starts_with(".") || name.starts_with("build"))) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file(dangling) && kinds.contains(at.extension().string())) {
      files.push_back(at);
    }
  }
  if (error) {
    reject(at.string(),
           fmt::format("{}; make it readable, or give another data.path", error.message()));
  }
  // As text, so that the order is that of the bytes of the path and nothing else.
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    return a.generic_string() < b.generic_string();
  });
  std::string text;
  for (const fs::path& file : files) text += io::read_text(file);
  if (text.empty()) reject(folder.string(), "holds no source text (.md, .h, .cpp, …)");
  return text;
}

}  // namespace fsdp::train
