#include "io/detokenizer.h"

#include "base/check.h"
#include "io/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

namespace fsdp::io {
namespace {

using nlohmann::json;

// Steps that each make a text longer would fill any memory in a few lines.
constexpr double kMostGrowth = 64;

using Pieces = std::vector<std::string>;
namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& key, const std::string& what) {
  throw InputError(fmt::format("{}: {}: {}; copy or save it again", path.string(), key, what));
}

// Member `name` of an object, which itself is called `key`.
template <class IsKind>
const json& member(const fs::path& path, const std::string& key, const json& object,
                   const char* name, const char* kind, const IsKind& is_kind) {
  const std::string whole = key.empty() ? name : key + "." + name;
  if (!object.is_object() || !object.contains(name)) refuse(path, whole, "is missing");
  const json& found = object[name];
  if (!is_kind(found)) refuse(path, whole, fmt::format("is not {}", kind));
  return found;
}

std::string text_of(const fs::path& path, const std::string& key, const json& object,
                    const char* name) {
  return member(path, key, object, name, "text", [](const json& it) { return it.is_string(); });
}

bool is_count(const json& value) {
  return value.is_number_integer() && value >= 0 && value <= INT32_MAX;
}

std::int64_t count_of(const fs::path& path, const std::string& key, const json& object,
                      const char* name) {
  return member(path, key, object, name, "a count", is_count);
}

// Byte-level tokens are written in characters that can be seen: GPT-2's bytes_to_unicode. Bytes
// that can be seen stand for themselves, and the others, in their order, for U+0100 and so on.
const std::array<int, 324>& byte_of_character() {
  static const std::array<int, 324> table = [] {
    std::array<int, 324> bytes{};
    bytes.fill(-1);
    std::size_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_seen = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      bytes[is_seen ? static_cast<std::size_t>(byte) : next++] = byte;
    }
    return bytes;
  }();
  return table;
}

// The bytes of a byte-level token. One with any other character stands for itself.
std::string byte_level(const std::string& token) {
  std::string bytes;
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::size_t character = static_cast<unsigned char>(token[i]);
    if (character >= 0xC0 && character < 0xE0 && i + 1 < token.size()) {  // the first of two bytes
      character = (character & 0x1FU) << 6U | (static_cast<unsigned char>(token[++i]) & 0x3FU);
    } else if (character >= 0x80) {
      return token;
    }
    const auto& table = byte_of_character();
    if (character >= table.size() || table[character] < 0) return token;
    bytes += static_cast<char>(table[character]);
  }
  return bytes;
}

// "<0x0A>" is the byte 0x0A.
std::optional<char> fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned byte = 0;
  const char* const end = token.data() + 5;
  const auto [stop, error] = std::from_chars(token.data() + 3, end, byte, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return static_cast<char>(byte);
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
}

void strip(std::string& text, const std::string& what, std::int64_t start, std::int64_t stop) {
  for (; start > 0 && text.starts_with(what); --start) text.erase(0, what.size());
  for (; stop > 0 && text.ends_with(what); --stop) text.resize(text.size() - what.size());
}

std::string join(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

// A step that changes each piece alone.
template <class Change>
std::function<void(Pieces&)> each(Change change) {
  return [change = std::move(change)](Pieces& pieces) {
    for (std::string& piece : pieces) change(piece);
  };
}

}  // namespace

void Detokenizer::add_step(const fs::path& path, const std::string& key, const json& decoder) {
  const std::string type = text_of(path, key, decoder, "type");
  if (type == "ByteLevel") {
    steps_.emplace_back([](Pieces& pieces) {
      for (std::string& piece : pieces) piece = byte_level(piece);
      pieces = {join(pieces)};
    });
  } else if (type == "ByteFallback") {
    steps_.push_back(each([](std::string& piece) {
      if (const std::optional<char> byte = fallback_byte(piece)) piece = std::string(1, *byte);
    }));
  } else if (type == "Fuse") {
    steps_.emplace_back([](Pieces& pieces) { pieces = {join(pieces)}; });
  } else if (type == "Strip") {
    const std::string what = text_of(path, key, decoder, "content");
    const std::int64_t start = count_of(path, key, decoder, "start");
    const std::int64_t stop = count_of(path, key, decoder, "stop");
    if (what.empty()) refuse(path, key + ".content", "is empty");
    steps_.push_back(each([=](std::string& piece) { strip(piece, what, start, stop); }));
  } else if (type == "Replace" && decoder.contains("pattern") &&
             decoder["pattern"].contains("String")) {
    const std::string what = text_of(path, key + ".pattern", decoder["pattern"], "String");
    const std::string by = text_of(path, key, decoder, "content");
    if (what.empty()) refuse(path, key + ".pattern.String", "is empty");
    growth_ *= std::max(1.0, static_cast<double>(by.size()) / static_cast<double>(what.size()));
    if (growth_ > kMostGrowth && obstacle_.empty()) {
      obstacle_ = fmt::format("{}: {}: with this step a text may become more than {} times as long",
                              path.string(), key, kMostGrowth);
    }
    steps_.push_back(each([=](std::string& piece) { replace_all(piece, what, by); }));
  } else if (obstacle_.empty()) {
    obstacle_ = fmt::format("{}: {}: {} is not supported", path.string(), key,
                            type == "Replace" ? "a pattern that is no String" : shown(type));
  }
}

void Detokenizer::read_tokens(const fs::path& path, const json& file) {
  const auto any = [](const json&) { return true; };
  const json& model = member(path, "", file, "model", "an object", any);
  const json& vocabulary = member(path, "model", model, "vocab", "an object", any);
  if (vocabulary.is_array()) {
    obstacle_ = fmt::format("{}: model.vocab: a list is not supported", path.string());
    return;
  }
  if (!vocabulary.is_object()) refuse(path, "model.vocab", "is not an object");
  for (const auto& [token, id] : vocabulary.items()) {
    if (!is_count(id)) refuse(path, "model.vocab", "has a token whose number is not a count");
    if (!tokens_.emplace(id.get<std::int64_t>(), token).second)
      refuse(path, "model.vocab", fmt::format("has two tokens with the number {}", shown(id)));
  }
  if (!file.contains("added_tokens")) return;
  const json& added = member(path, "", file, "added_tokens", "a list",
                             [](const json& it) { return it.is_array(); });
  for (std::size_t i = 0; i < added.size(); ++i) {
    const std::string key = fmt::format("added_tokens[{}]", i);
    const std::int64_t id = count_of(path, key, added[i], "id");
    tokens_[id] = text_of(path, key, added[i], "content");
  }
}

Detokenizer Detokenizer::read(const fs::path& path) {
  const json file = read_json_object(path);
  Detokenizer made;
  made.read_tokens(path, file);
  const json decoder = file.value("decoder", json());
  if (decoder.is_null()) {
    if (made.obstacle_.empty()) made.obstacle_ = path.string() + ": decoder: there is none";
  } else if (text_of(path, "decoder", decoder, "type") == "Sequence") {
    const json& steps = member(path, "decoder", decoder, "decoders", "a list",
                               [](const json& it) { return it.is_array(); });
    for (std::size_t i = 0; i < steps.size(); ++i) {
      made.add_step(path, fmt::format("decoder.decoders[{}]", i), steps[i]);
    }
  } else {
    made.add_step(path, "decoder", decoder);
  }
  return made;
}

std::string Detokenizer::decode(const std::vector<std::int32_t>& tokens) const {
  FSDP_CHECK(obstacle_.empty(), "{}", obstacle_);
  Pieces pieces;
  for (const std::int32_t token : tokens) {
    const auto found = tokens_.find(token);
    pieces.push_back(found == tokens_.end() ? fmt::format("<{}>", token) : found->second);
  }
  for (const auto& step : steps_) step(pieces);
  return join(pieces);
}

}  // namespace fsdp::io
