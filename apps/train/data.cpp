#include "train/data.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/file_io.h"
#include "train/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace fsdp::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void reject(const std::string& name, const std::string& what) {
  throw InputError(fmt::format("{}: {}", printable(name, PATH_MAX), what));
}

// Whatever is wrong with the data, the user learns which key they come from.
template <class Open>
TokenData under(const std::string& key, Open&& open) {
  try {
    return open();
  } catch (const InputError& error) {
    reject(key, error.what());
  }
}

void check_tokens(const Tokens& all, const std::string& name, std::int64_t vocabulary) {
  const auto check = [&](const auto& tokens) {
    const auto outside =
        std::ranges::find_if(tokens, [&](std::int64_t token) { return token >= vocabulary; });
    if (outside == tokens.end()) return;
    const std::int64_t largest = *std::ranges::max_element(tokens);
    reject(name, fmt::format("token {} at position {} is outside the vocabulary of {}; use "
                             "a model with a vocabulary (model.vocab_size) of {} or more, or make "
                             "the file anew",
                             *outside, outside - tokens.begin(), vocabulary, largest + 1));
  };
  std::visit(check, all);
}

}  // namespace

TokenData TokenData::from_text(std::string_view text, const std::string& name,
                               std::int64_t vocabulary) {
  std::vector<std::uint16_t> bytes(text.size());
  std::transform(text.begin(), text.end(), bytes.begin(),
                 [](char c) { return static_cast<std::uint16_t>(static_cast<unsigned char>(c)); });
  Tokens tokens = std::move(bytes);
  check_tokens(tokens, name, vocabulary);
  return {std::move(tokens), name, true};
}

std::int64_t TokenData::size() const {
  return std::visit([](const auto& tokens) { return std::ssize(tokens); }, tokens_);
}

void TokenData::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  FSDP_CHECK(begin >= 0 && begin + std::ssize(out) <= size(), "tokens {} to {} of {} in {}", begin,
             begin + std::ssize(out), size(), name_);
  const auto from = [&](const auto& tokens) {
    std::transform(tokens.begin() + begin, tokens.begin() + begin + std::ssize(out), out.begin(),
                   [](auto token) { return static_cast<std::int32_t>(token); });
  };
  std::visit(from, tokens_);
}

std::span<const std::byte> TokenData::bytes() const {
  return std::visit([](const auto& tokens) { return std::as_bytes(std::span(tokens)); }, tokens_);
}

void check_tokenizer(const config::TrainConfig& config, const std::string& origin,
                     const TokenData& data) {
  if (config.from.empty() || !data.is_text()) return;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"}) {
    std::error_code ignored;
    const fs::path tokenizer = fs::path(config.from) / name;
    if (!fs::exists(tokenizer, ignored)) continue;
    throw InputError(
        fmt::format("{}: {}: is text, whose tokens are its bytes, but the model of model.from has "
                    "the tokenizer {}; make a file of its tokens with apps/train/tokenize_text.py",
                    origin, data.name(), tokenizer.string()));
  }
}

void check_same_kind(const config::TrainConfig& config, const TokenData& data,
                     const TokenData& validation) {
  if (data.is_text() == validation.is_text()) return;
  const auto kind = [](const TokenData& each) {
    return each.is_text() ? "text, whose tokens are its bytes" : "a token file";
  };
  throw InputError(fmt::format("{}: {}: is {}, but data.path {} is {}; use the same kind for both",
                               config.origin("data.validation"), validation.name(),
                               kind(validation), data.name(), kind(data)));
}

void check_length(const std::string& origin, const TokenData& data, std::int64_t sequence_length) {
  if (data.size() > sequence_length) return;
  reject(origin, fmt::format("{}: has {} tokens, one sequence needs {} (and the one after it); use "
                             "more text or a smaller training.seq_len",
                             data.name(), data.size(), sequence_length));
}

TokenData TokenData::open(const config::DataConfig& config, std::int64_t vocabulary) {
  if (config.path.empty()) {
    reject("data.path", "nothing to train on; give a text file, a folder or a token file");
  }
  return under("data.path", [&] { return open(config.path, config, vocabulary); });
}

TokenData TokenData::open_validation(const config::DataConfig& config, std::int64_t vocabulary,
                                     const std::string& key) {
  return under(key, [&] { return open(config.validation, config, vocabulary); });
}

TokenData TokenData::open(const std::string& name, const config::DataConfig& how,
                          std::int64_t vocabulary) {
  const std::string& format = how.format;
  const fs::path path = name;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    std::error_code ignored;
    reject(name, fmt::format("no such file or folder (looked for it from {})",
                             fs::current_path(ignored).string()));
  }
  if (error) {
    reject(name, fmt::format("{}; give a file or folder that you may read", error.message()));
  }
  if (status.type() == fs::file_type::character || status.type() == fs::file_type::block) {
    reject(name, "is a device, whose text may have no end; give a file, a folder or a pipe");
  }
  if (fs::is_directory(status)) {
    if (how.is_tokens())
      reject(name, fmt::format("is a folder; data.format {} needs a file", format));
    return from_text(source_text(path, format != "bytes"), name, vocabulary);
  }
  const io::File file =
      how.is_tokens() ? io::File::open_to_read(path) : io::File::open_to_read_on(path);
  if (!how.is_tokens() && (format != "auto" || !is_token_file(file))) {
    const std::string bytes = io::read_text(path);
    if (format == "bytes") return from_text(bytes, name, vocabulary);
    check_is_text(bytes, name);
    const bool is_lines = !how.field.empty() || (format == "auto" && path.extension() == ".jsonl");
    return from_text(is_lines ? texts_of_lines(bytes, how.field, name) : bytes, name, vocabulary);
  }
  const std::size_t raw = format == "uint16" ? 2 : format == "uint32" ? 4 : 0;
  Tokens tokens = raw == 0 ? read_token_file(file) : read_raw_tokens(file, raw, vocabulary);
  check_tokens(tokens, name, vocabulary);
  return {std::move(tokens), name, false};
}

std::string source_text(const fs::path& folder, bool is_checked) {
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
           fmt::format("{}; make it readable, or give another folder", error.message()));
  }
  // As text, so that the order is that of the bytes of the path and nothing else.
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    return a.generic_string() < b.generic_string();
  });
  std::string text;
  for (const fs::path& file : files) {
    const std::string more = io::read_text(file);
    if (is_checked) check_is_text(more, file.string());
    text += more;
  }
  if (text.empty()) reject(folder.string(), "holds no source text (.md, .h, .cpp, …)");
  return text;
}

}  // namespace fsdp::train
