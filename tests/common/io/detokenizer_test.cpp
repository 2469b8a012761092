// Tokens as text, by small files like those of Hugging Face's tokenizers.
#include "io/detokenizer.h"
#include "base/check.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp::io {
namespace detokenizing {

using nlohmann::json;
using testing::TemporaryFolder;
using Ids = std::vector<std::int32_t>;

// As in SmolLM2: "Ġ" is a space, "Ċ" a newline, "Ã" and "©" the two bytes of "é", "Ń" byte 0xAD.
constexpr const char* kByteLevel = R"({
  "version": "1.0", "truncation": null, "normalizer": null,
  "added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": true},
                   {"id": 9, "content": "two words", "special": false}],
  "model": {"type": "BPE", "vocab": {"<|endoftext|>": 0, "Hello": 1, "Ġworld": 2, "Ċ": 3,
            "Ã": 4, "©": 5, "ðŁĺ": 6, "Ģ": 7, "Ń": 8, "Ķ": 10, "中": 11}, "merges": []},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
              "use_regex": true}})";

// As in Llama 2.
constexpr const char* kSentencePiece = R"({
  "added_tokens": [{"id": 0, "content": "<unk>"}, {"id": 1, "content": "<s>"}],
  "model": {"type": "BPE", "byte_fallback": true, "vocab": {"<unk>": 0, "<s>": 1, "<0x0A>": 2,
            "<0xC3>": 3, "<0xa9>": 4, "▁Hello": 5, "▁world": 6, "s▁and▁s": 7, "<0xZZ>": 8,
            "é": 9}},
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})";

struct Written {
  TemporaryFolder home;
  std::filesystem::path path = home / "tokenizer.json";
  explicit Written(const std::string& text) { write_text_atomically(path, text); }
};

std::string decoded(const std::string& file, const Ids& ids) {
  return Detokenizer::read(Written(file).path).decode(ids);
}

}  // namespace detokenizing

using namespace detokenizing;

TEST_CASE("a byte-level tokenizer's tokens become the bytes they stand for", "[detokenizer]") {
  CHECK(decoded(kByteLevel, {1, 2, 3, 2}) == "Hello world\n world");
  CHECK(decoded(kByteLevel, {4, 5, 6, 7}) == "é😀");
  CHECK(decoded(kByteLevel, {4, 1}) == "\xC3Hello");  // half a character
  CHECK(decoded(kByteLevel, {8, 10}) == "\xAD\x94");
  CHECK(decoded(kByteLevel, {1, 0, 2}) == "Hello<|endoftext|> world");
  CHECK(decoded(kByteLevel, {9, 11}) == "two words中");  // no characters that stand for bytes
  CHECK(decoded(kByteLevel, {1, 12, -1, 49152}) == "Hello<12><-1><49152>");
  CHECK(decoded(kByteLevel, {}).empty());
}

TEST_CASE("every byte has the character of GPT-2's table", "[detokenizer]") {
  json file = json::parse(kByteLevel);
  json& vocabulary = file["model"]["vocab"] = json::object();
  // The characters of the bytes 0 … 255 in their order, as bytes_to_unicode() gives them.
  std::string characters;
  const auto add = [&](int character) {
    if (character >= 0x80) characters += static_cast<char>(0xC0 | character >> 6);
    characters += static_cast<char>(character >= 0x80 ? 0x80 | (character & 0x3F) : character);
  };
  const auto add_all = [&](int first, int last) {
    for (int character = first; character <= last; ++character) add(character);
  };
  add_all(0x100, 0x120);  // 0x00 to 0x20
  add_all(0x21, 0x7E);
  add_all(0x121, 0x142);  // 0x7F to 0xA0
  add_all(0xA1, 0xAC);
  add(0x143);  // 0xAD
  add_all(0xAE, 0xFF);
  vocabulary[characters] = 1;
  std::string bytes(256, ' ');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  CHECK(decoded(file.dump(), {1}) == bytes);
  vocabulary.clear();
  vocabulary["a\xC5\x84"] = 1;  // U+0144, the first beyond the table
  CHECK(decoded(file.dump(), {1}) == "a\xC5\x84");
}

TEST_CASE("a tokenizer of SentencePiece's kind decodes as its sequence says", "[detokenizer]") {
  CHECK(decoded(kSentencePiece, {5, 6}) == "Hello world");  // one space at the start is stripped
  CHECK(decoded(kSentencePiece, {6, 7, 2, 5}) == "worlds and s\n Hello");
  CHECK(decoded(kSentencePiece, {3, 4, 9}) == "éé");
  CHECK(decoded(kSentencePiece, {3, 5}) == "\xC3 Hello");
  CHECK(decoded(kSentencePiece, {1, 5, 8, 0, 10}) == "<s> Hello<0xZZ><unk><10>");
  json file = json::parse(kSentencePiece);
  file["decoder"]["decoders"][3] = {{"type", "Strip"}, {"content", "l"}, {"start", 0}, {"stop", 2}};
  CHECK(decoded(file.dump(), {5}) == " Hello");
  file["model"]["vocab"]["lll"] = 11;
  CHECK(decoded(file.dump(), {5, 11}) == " Hellol");
}

TEST_CASE("what a tokenizer asks for beyond that is named", "[detokenizer]") {
  const json good = json::parse(kSentencePiece);
  const auto obstacle = [&](const char* at, const json& value) {
    json file = good;
    file[json::json_pointer(at)] = value;
    const Written written(file.dump());
    const Detokenizer read = Detokenizer::read(written.path);
    CHECK(read.obstacle().starts_with(written.path.string() + ": "));
    CHECK_THROWS_AS(read.decode({5}), Error);
    return read.obstacle().substr(written.path.string().size() + 2);
  };
  CHECK(obstacle("/decoder", nullptr) == "decoder: there is none");
  CHECK(obstacle("/decoder", {{"type", "WordPiece"}}) == "decoder: \"WordPiece\" is not supported");
  CHECK(obstacle("/decoder/decoders/2", {{"type", "Meta\nspace"}}) ==
        "decoder.decoders[2]: \"Meta\\nspace\" is not supported");
  CHECK(obstacle("/decoder/decoders/0/pattern", {{"Regex", "a+"}}) ==
        "decoder.decoders[0]: a pattern that is no String is not supported");
  CHECK(obstacle("/model/vocab", json::array({json::array({"a", 0.0})})) ==
        "model.vocab: a list is not supported");
}

TEST_CASE("steps that make a text much longer are not followed", "[detokenizer]") {
  const auto doubled = [](int times) {
    json file = json::parse(kSentencePiece);
    json& steps = file["decoder"]["decoders"] = json::array();
    for (int i = 0; i < times; ++i) {
      steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "l"}}}, {"content", "ll"}});
    }
    return file.dump();
  };
  const std::string shorter = decoded(doubled(2), {5});
  CHECK(std::ranges::count(shorter, 'l') == 8);  // of "Hello"
  for (const int times : {7, 60}) {
    const Written written(doubled(times));
    CHECK_THAT(
        Detokenizer::read(written.path).obstacle(),
        contains("decoder.decoders[6]: with this step a text may become more than 64 times"));
  }
}

TEST_CASE("a damaged tokenizer.json is refused with file, key and remedy", "[detokenizer]") {
  const auto refused = [](const std::string& text, const std::string& what) {
    const Written written(text);
    const std::string message = message_of<InputError>([&] { Detokenizer::read(written.path); });
    CHECK(message == written.path.string() + ": " + what + "; copy or save it again");
  };
  refused("", "is not JSON from byte 1 on");
  refused("[]", "is not a JSON object");
  refused("{}", "model: is missing");
  refused(std::string(kByteLevel).substr(0, 300), "is not JSON from byte 301 on");
  const auto changed = [&](const char* at, const json& value, const std::string& what) {
    json file = json::parse(kSentencePiece);
    file[json::json_pointer(at)] = value;
    refused(file.dump(), what);
  };
  changed("/model", 3, "model.vocab: is missing");
  changed("/model/vocab", "a", "model.vocab: is not an object");
  for (const json& id : {json(-1), json(1.5), json("1"), json(1ULL << 31)}) {
    changed("/model/vocab/<s>", id, "model.vocab: has a token whose number is not a count");
  }
  changed("/model/vocab/<s>", 5, "model.vocab: has two tokens with the number 5");
  changed("/added_tokens", "a", "added_tokens: is not a list");
  changed("/added_tokens/1", 7, "added_tokens[1].id: is missing");
  changed("/added_tokens/1/id", -7, "added_tokens[1].id: is not a count");
  changed("/added_tokens/1/content", 7, "added_tokens[1].content: is not text");
  changed("/decoder", 7, "decoder.type: is missing");
  changed("/decoder/type", 7, "decoder.type: is not text");
  changed("/decoder/decoders", 7, "decoder.decoders: is not a list");
  changed("/decoder/decoders/1", 7, "decoder.decoders[1].type: is missing");
  changed("/decoder/decoders/0/content", 7, "decoder.decoders[0].content: is not text");
  changed("/decoder/decoders/0/pattern/String", "", "decoder.decoders[0].pattern.String: is empty");
  changed("/decoder/decoders/3/content", "", "decoder.decoders[3].content: is empty");
  changed("/decoder/decoders/3/start", -1, "decoder.decoders[3].start: is not a count");

  const TemporaryFolder home;
  CHECK_THAT(message_of<InputError>([&] { Detokenizer::read(home.path()); }),
             contains(home.path().string()));
  std::ofstream(home / "long");
  std::filesystem::resize_file(home / "long", (std::uintmax_t{1} << 26) + 1);
  CHECK_THAT(message_of<InputError>([&] { Detokenizer::read(home / "long"); }),
             contains("is longer than"));
}

}  // namespace fsdp::io
