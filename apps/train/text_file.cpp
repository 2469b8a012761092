#include "train/text_file.h"

#include "base/check.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "io/json_file.h"
#include "train/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp::train {
namespace {

using namespace std::string_view_literals;

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw InputError(fmt::format("{}: {}", printable(name, PATH_MAX), why));
}

constexpr const char* kAsBytes = "to train on its bytes as they are, set data.format to bytes";

// UTF-16 begins with one of two marks, and UTF-32 with a longer one. Without a mark, nearly every
// second byte of UTF-16 is NUL if its letters are Latin.
std::string_view wide_encoding(std::string_view bytes) {
  if (bytes.starts_with("\xff\xfe\x00\x00"sv) || bytes.starts_with("\x00\x00\xfe\xff"sv)) {
    return "UTF-32";
  }
  if (bytes.starts_with("\xff\xfe"sv) || bytes.starts_with("\xfe\xff"sv)) return "UTF-16";
  constexpr std::size_t kSome = 4096;
  std::array<std::size_t, 2> nuls{};
  std::size_t letters = 0;  // of ASCII, and the white space between them
  const std::size_t count = std::min(bytes.size(), kSome) / 2 * 2;
  for (std::size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte == 0) ++nuls[i % 2];
    if ((byte >= 0x20 && byte < 0x7F) || (byte >= '\t' && byte <= '\r')) ++letters;
  }
  const std::size_t most = count / 2 - count / 20;
  if (count < 8 || letters < most) return "";
  return nuls[1] >= most ? "UTF-16LE" : nuls[0] >= most ? "UTF-16BE" : "";
}

struct Strays {
  std::size_t count = 0;
  std::size_t first = 0;  ///< byte
};

Strays strays_in(std::string_view bytes) {
  Strays strays;
  for (std::size_t i = 0; i < bytes.size();) {
    if (static_cast<unsigned char>(bytes[i]) < 0x80) {  // nearly all are
      ++i;
      continue;
    }
    const Utf8Character each = first_character(bytes.substr(i, 4));
    if (!each.is_utf8 && strays.count++ == 0) strays.first = i;
    i += each.nbytes;
  }
  return strays;
}

std::string fields_of(const nlohmann::json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) {
    if (value.is_string()) names.push_back(printable(name));
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void check_is_text(std::string_view bytes, const std::string& name) {
  if (const FileKind* kind = kind_of(bytes, bytes.size())) {
    refuse(name, fmt::format("is no text, but looks like {}; {}", kind->what, kind->way_on));
  }
  if (const std::string_view wide = wide_encoding(bytes); !wide.empty()) {
    refuse(name, fmt::format("is no text in UTF-8, but looks like text in {}; convert it (iconv -f "
                             "{} -t UTF-8)",
                             wide, wide));
  }
  if (const std::size_t nul = bytes.find('\0'); nul != std::string_view::npos) {
    refuse(name, fmt::format("is no text: byte {} is NUL. If it holds tokens alone, as nanoGPT and "
                             "llama2.c write them, set data.format to uint16 or uint32; {}",
                             nul, kAsBytes));
  }
  const Strays strays = strays_in(bytes);
  if (strays.count > 1 && strays.count > bytes.size() / 1000) {
    refuse(name, fmt::format("is no text in UTF-8: {} bytes are no part of it, the first is byte "
                             "{}. Convert it (iconv -f LATIN1 -t UTF-8); {}",
                             strays.count, strays.first, kAsBytes));
  }
}

std::string texts_of_lines(std::string_view lines, const std::string& field,
                           const std::string& name) {
  std::string texts;
  int number = 0;
  for (std::size_t begin = 0, end = 0; begin < lines.size(); begin = end + 1) {
    end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = lines.substr(begin, end - begin);
    const std::string place = fmt::format("{}:{}", name, ++number);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    nlohmann::json object;
    try {
      object = io::parse_json(line);
    } catch (const io::JsonError& error) {
      refuse(place, fmt::format("{}; each line must be one JSON object", error.what()));
    }
    if (!object.is_object()) refuse(place, "is no JSON object, as each line must be");
    const auto text = field.empty() ? object.end() : object.find(field);
    if (text == object.end() || !text->is_string()) {
      refuse(place,
             field.empty()
                 ? fmt::format("is JSON; name the field of the text by data.field (it has {}), or "
                               "set data.format to text to train on the lines as they are",
                               fields_of(object))
                 : fmt::format("has no text in the field \"{}\" of data.field; its texts are {}",
                               printable(field), fields_of(object)));
    }
    texts += text->get_ref<const std::string&>() + '\n';
  }
  return texts;
}

}  // namespace fsdp::train
