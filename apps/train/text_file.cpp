#include "train/text_file.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp::train {
namespace {

using namespace std::string_view_literals;

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw InputError(fmt::format("{}: {}", printable(name, PATH_MAX), why));
}

constexpr const char* kAsBytes = "to train on its bytes as they are, set data.format to bytes";

struct Kind {
  std::string_view begin;
  const char* what;
  const char* way_on;
};
constexpr const char* kUnpack = "unpack it first";
constexpr const char* kNoText = "take the text out of it first";
constexpr std::array kKinds = {
    Kind{"\x1f\x8b"sv, "compressed by gzip", kUnpack},
    Kind{"BZh"sv, "compressed by bzip2", kUnpack},
    Kind{"\xfd\x37zXZ\x00"sv, "compressed by xz", kUnpack},
    Kind{"\x28\xb5\x2f\xfd"sv, "compressed by zstd", kUnpack},
    Kind{"PK\x03\x04"sv, "a zip archive", kUnpack},
    Kind{"\x93NUMPY"sv, "an array of NumPy",
         "write its tokens alone, by array.astype(\"uint16\").tofile(\"tokens.bin\"), and set "
         "data.format to uint16"},
    Kind{"PAR1"sv, "a Parquet table", kNoText},
    Kind{"ARROW1"sv, "an Arrow table", kNoText},
    Kind{"%PDF"sv, "a PDF", kNoText},
    Kind{"\x7f\x45LF"sv, "a program", "give the text to train on"},
};

bool is_safetensors(std::string_view bytes) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length + 2) return false;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length < bytes.size() && bytes.substr(sizeof length, 2) == "{\"";
}

// The length of the character of UTF-8 that begins `bytes`; 0 if none does.
std::size_t character(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || bytes.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (at(i) < 0x80 || at(i) >= 0xC0) return 0;
  }
  // What has a shorter form, surrogates, and what is beyond U+10FFFF.
  const unsigned second = at(1);
  const bool is_wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return is_wrong ? 0 : length;
}

struct Strays {
  std::size_t count = 0;
  std::size_t first = 0;  ///< byte
};

Strays strays_in(std::string_view bytes) {
  Strays strays;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = character(bytes.substr(i, 4));
    if (length == 0 && strays.count++ == 0) strays.first = i;
    i += std::max<std::size_t>(length, 1);
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
  const auto* kind =
      std::ranges::find_if(kKinds, [&](const Kind& each) { return bytes.starts_with(each.begin); });
  if (kind != kKinds.end()) {
    refuse(name, fmt::format("is no text, but looks like {}; {}", kind->what, kind->way_on));
  }
  if (is_safetensors(bytes)) {
    refuse(name,
           "is no text, but looks like weights in a safetensors file; give the text to train "
           "on, and the folder of the weights as model.from");
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
