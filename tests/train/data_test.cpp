// Tokens: what is accepted, what is refused, and which of them a micro-batch gets.
#include "train/data.h"

#include "base/check.h"
#include "io/file_io.h"
#include "optim/gradient_engine.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

using testing::TemporaryFolder;

struct TokenFile {
  std::int32_t magic = 20240520;
  std::int32_t version = 1;
  std::int32_t count = 5;
  std::vector<std::uint32_t> tokens = {1, 2, 300, 4, 5};
  std::size_t token_bytes = 2;
  std::size_t header_bytes = 1024;

  void write(const std::filesystem::path& path) const {
    std::vector<std::int32_t> header(256, 0);
    header[0] = magic;
    header[1] = version;
    header[2] = count;
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(header.data()),
              static_cast<std::streamsize>(header_bytes));
    for (const std::uint32_t token : tokens) {
      out.write(reinterpret_cast<const char*>(&token), static_cast<std::streamsize>(token_bytes));
    }
  }
};

// With tokens that 16 bits do not hold.
TokenFile wide_file() {
  return {.magic = 20240801, .version = 7, .tokens = {1, 2, 70000, 4, 128255}, .token_bytes = 4};
}

std::string reading_complaint(const TokenFile& file, std::int64_t vocabulary = 50304,
                              const std::string& format = "auto") {
  const TemporaryFolder folder;
  const std::string path = folder / "tokens.bin";
  file.write(path);
  const std::string message = message_of<InputError>([&] {
    TokenData::open({path, format}, vocabulary);
  });
  if (!message.empty()) CHECK_THAT(message, contains(path));
  return message;
}

std::vector<std::int32_t> values(const Tensor& tensor) { return tensor.to_vector<std::int32_t>(); }

}  // namespace

TEST_CASE("a token file of either width is recognized and read", "[data]") {
  const TemporaryFolder folder;
  for (const TokenFile& file : {TokenFile(), wide_file()}) {
    file.write(folder / "tokens.bin");
    for (const char* format : {"auto", "tokens"}) {
      const TokenData data = TokenData::open({folder / "tokens.bin", format}, 128256);
      CHECK_FALSE(data.is_text());
      CHECK(data.size() == 5);
      CHECK(data.bytes().size() == 5 * file.token_bytes);
      std::vector<std::int32_t> read(5);
      data.copy(0, read);
      CHECK(std::ranges::equal(read, file.tokens));
      CHECK_THAT(message_of<Error>([&] { data.copy(1, read); }), contains("tokens 1 to 6 of 5"));
      const MicroBatch micro = Sampler(data, 1, 1, 4).micro_batch(0, 0);
      CHECK(std::ranges::equal(values(micro.tokens), std::span(file.tokens).first(4)));
      CHECK(std::ranges::equal(values(micro.targets), std::span(file.tokens).last(4)));
    }
  }
}

TEST_CASE("a damaged token file is refused with the field that is wrong", "[data]") {
  CHECK(reading_complaint({}).empty());
  CHECK(reading_complaint(wide_file(), 128256).empty());
  CHECK_THAT(reading_complaint({.version = 7}),
             contains("its magic number 20240520 is that of uint16 tokens, whose version is 1, but "
                      "its version is 7; write it again"));
  CHECK_THAT(reading_complaint({.magic = 20240801, .version = 1}),
             contains("its magic number 20240801 is that of uint32 tokens, whose version is 7, but "
                      "its version is 1; write it again"));
  CHECK_THAT(reading_complaint({.count = 6}),
             contains("counts 6 tokens of 2 bytes, but its 1034 bytes hold 5; copy it again"));
  CHECK_THAT(reading_complaint({.count = -1}), contains("counts -1 tokens"));
  TokenFile odd = wide_file();
  odd.token_bytes = 3;
  CHECK_THAT(reading_complaint(odd, 128256),
             contains("counts 5 tokens of 4 bytes, but its 1039 bytes hold 3"));
  odd.count = 3;  // and three bytes
  CHECK_THAT(reading_complaint(odd, 128256), contains("hold 3"));
  CHECK_THAT(reading_complaint({.header_bytes = 512}, 50304, "tokens"), contains("the header"));
  CHECK_THAT(reading_complaint({.magic = 7}, 50304, "tokens"),
             contains("its magic number is 7, not 20240520 (uint16 tokens) or 20240801 (uint32 "
                      "tokens); set data.format to text"));
}

TEST_CASE("a token outside the vocabulary is named with its place", "[data]") {
  CHECK_THAT(reading_complaint({}, 300),
             contains("token 300 at position 2 is outside the vocabulary of 300; use a "
                      "model with a vocabulary (model.vocab_size) of 301 or more"));
  CHECK(reading_complaint({}, 301).empty());
  CHECK_THAT(reading_complaint(wide_file(), 128255),
             contains("token 128255 at position 4 is outside the vocabulary of 128255"));
  TokenFile huge = wide_file();
  huge.tokens[3] = 0xFFFFFFFF;  // as int32 it would be -1
  CHECK_THAT(reading_complaint(huge, 128256), contains("token 4294967295 at position 3"));
  CHECK_THAT(message_of<InputError>([] { TokenData::from_text("ab\xff", "a text", 128); }),
             contains("a text: token 255 at position 2 is outside the vocabulary of 128"));
}

TEST_CASE("a file of tokens alone is read as data.format says", "[data]") {
  const TemporaryFolder folder;
  const std::string raw("\x01\x00\x00\x02\xff\xff\x00\x00", 8);
  io::write_text_atomically(folder / "raw.bin", raw);
  for (const auto& [format, expected] :
       {std::pair<std::string, std::vector<std::int32_t>>{"uint16", {1, 512, 65535, 0}},
        {"uint32", {33554433, 65535}},
        {"bytes", {1, 0, 0, 2, 255, 255, 0, 0}}}) {
    CAPTURE(format);
    const TokenData data = TokenData::open({folder / "raw.bin", format}, 33554434);
    CHECK(data.is_text() == (format == "bytes"));
    std::vector<std::int32_t> read(static_cast<std::size_t>(data.size()));
    data.copy(0, read);
    CHECK(read == expected);
  }
  const auto complaint = [&](const char* format, std::int64_t vocabulary) {
    return message_of<InputError>([&] {
      TokenData::open({folder / "raw.bin", format}, vocabulary);
    });
  };
  CHECK_THAT(complaint("uint16", 50304),
             contains("token 65535 at position 2 is outside the vocabulary of 50304"));
  CHECK_THAT(complaint("auto", 256),
             contains("data.path: ") &&
                 contains("is no text: byte 1 is NUL. If it holds tokens alone, as nanoGPT and "
                          "llama2.c write them, set data.format to uint16 or uint32"));
  CHECK_THAT(complaint("text", 256), contains("is no text: byte 1 is NUL"));
  io::write_text_atomically(folder / "raw.bin", raw + "x");
  CHECK_THAT(complaint("uint16", 65536), contains("has 9 bytes, which are no whole tokens of 2"));
  TokenFile().write(folder / "raw.bin");
  CHECK_THAT(complaint("uint16", 65536), contains("has the header of a token file"));
}

TEST_CASE("what is no text is refused with what it looks like", "[data]") {
  using namespace std::string_literals;
  const TemporaryFolder folder;
  const auto complaint = [&](const std::string& bytes) {
    io::write_text_atomically(folder / "file", bytes);
    try {
      TokenData::open({folder / "file", "auto"}, 256);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return ""s;
  };
  const std::string text(5000, 'a');
  for (const auto& [begin, kind] :
       {std::pair{"\x1f\x8b\b"s, "compressed by gzip; unpack it first"s},
        {"BZh9"s, "compressed by bzip2"s},
        {"\xfd\x37zXZ\0"s, "compressed by xz"s},
        {"\x28\xb5\x2f\xfd"s, "compressed by zstd"s},
        {"PK\x03\x04"s, "a zip archive"s},
        {"\x93NUMPY\x01"s, "an array of NumPy; write its tokens alone"s},
        {"PAR1"s, "a Parquet table"s},
        {"ARROW1"s, "an Arrow table"s},
        {"%PDF-1.7"s, "a PDF"s},
        {"\x7f\x45LF"s, "a program; give the text to train on"s},
        {"\x10\0\0\0\0\0\0\0{\"a\":"s, "weights in a safetensors file"s}}) {
    CAPTURE(kind);
    CHECK_THAT(complaint(begin + text), contains("is no text, but looks like " + kind));
  }
  // Umlauts are text in UTF-8. In Latin-1 they are no text, but one stray byte changes nothing.
  CHECK(complaint("f\xc3\xbc\x72 \xe2\x82\xac \xf0\x9f\x98\x80").empty());
  CHECK(complaint("one stray \xfc").empty());
  CHECK(complaint(text + "\xfc\xfc\xfc\xfc").empty());  // four of 5000
  CHECK_THAT(
      complaint("f\xfc\x72 \xfc\x62" + text.substr(0, 900)),
      contains("is no text in UTF-8: 2 bytes are no part of it, the first is byte 1. Convert"));
  for (const std::string& wrong :
       {"\xc0\x80"s, "\xe0\x80\x80"s, "\xed\xa0\x80"s, "\xf4\x90\x80\x80"s, "\xf0\x80\x80\x80"s,
        "\xff\xff"s, "\xe2\x82"s, "\x80\x80"s}) {
    CHECK_FALSE(complaint("a" + wrong + "b" + wrong + "c").empty());
  }
}

TEST_CASE("the texts of a .jsonl file are those of a field", "[data]") {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& lines, const std::string& field) {
    io::write_text_atomically(folder / "lines.jsonl", lines);
    const TokenData data = TokenData::open({.path = folder / "lines.jsonl", .field = field}, 256);
    std::vector<std::int32_t> read(static_cast<std::size_t>(data.size()));
    data.copy(0, read);
    return std::string(read.begin(), read.end());
  };
  const std::string lines =
      "{\"text\": \"one\", \"n\": 1}\n\n{\"text\": \"t\\u0077o\\n\", \"url\": \"x\"}\r\n";
  CHECK(open(lines, "text") == "one\ntwo\n\n");
  const auto complaint = [&](const std::string& all, const std::string& field) {
    return message_of<InputError>([&] { open(all, field); });
  };
  CHECK_THAT(complaint(lines, ""),
             contains("lines.jsonl:1: is JSON; name the field of the text by data.field (it has "
                      "text)"));
  CHECK_THAT(
      complaint(lines, "url"),
      contains("lines.jsonl:1: has no text in the field \"url\" of data.field; its texts are "
               "text"));
  CHECK_THAT(complaint(lines, "n"), contains("its texts are text"));
  CHECK_THAT(complaint("{\"text\": \"a\"}\n{\"text\": ", "text"),
             contains("lines.jsonl:2: is not JSON"));
  CHECK_THAT(complaint("[]\n", "text"), contains("lines.jsonl:1: is no JSON object"));
  io::write_text_atomically(folder / "lines.jsonl", lines);
  const TokenData as_text = TokenData::open({folder / "lines.jsonl", "text"}, 256);
  CHECK(as_text.size() == static_cast<std::int64_t>(lines.size()));
}

TEST_CASE("data that are not there are named", "[data]") {
  CHECK_THAT(message_of<InputError>([] {
               TokenData::open({"", "auto"}, 256);
             }),
             contains("data.path: nothing to train on"));
  CHECK_THAT(message_of<InputError>([] {
               TokenData::open({"no/such/file", "auto"}, 256);
             }),
             contains("no/such/file: no such file"));
  const TemporaryFolder folder;
  CHECK_THAT(message_of<InputError>([&] {
               TokenData::open({folder.path(), "auto"}, 256);
             }),
             contains("no source text"));
  CHECK_THAT(message_of<InputError>([&] {
               TokenData::open({folder.path(), "tokens"}, 256);
             }),
             contains("is a folder"));
  io::write_text_atomically(folder / "short", "12345678");
  const TokenData data = TokenData::open({folder / "short", "auto"}, 256);
  CHECK_THAT(message_of<InputError>([&] { check_length("data.path", data, 8); }),
             contains((folder / "short").string()) && contains("has 8 tokens"));
  CHECK_NOTHROW(check_length("data.path", data, 7));
}

TEST_CASE("the sources of a folder are read in the order of their paths", "[data]") {
  const TemporaryFolder folder;
  for (const char* sub : {"b", "b/build", "build-x", ".git"}) {
    std::filesystem::create_directory(folder / sub);
  }
  const auto put = [&](const char* name, const char* text) {
    io::write_text_atomically(folder / name, text);
  };
  put("c.md", "3");
  put("b/z.cpp", "2");
  put("a.h", "1");
  put("picture.png", "no");
  put("b/build/x.h", "no");
  put("build-x/x.h", "no");
  put(".git/x.h", "no");
  CHECK(source_text(folder.path()) == "123");
}

TEST_CASE("a micro-batch is a pure function of seed, step and j", "[data]") {
  std::string text(1000, ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 % 251);
  const TokenData data = TokenData::from_text(text, "text", 256);
  const Sampler sampler(data, 5, 3, 16);
  const Sampler again(data, 5, 3, 16);
  again.micro_batch(9, 9);  // what was drawn before does not matter
  const MicroBatch a = sampler.micro_batch(2, 7);
  const MicroBatch b = again.micro_batch(2, 7);
  CHECK(values(a.tokens) == values(b.tokens));
  CHECK(values(a.targets) == values(b.targets));
  CHECK(a.tokens.shape() == Shape{3, 16});
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto begin = static_cast<std::size_t>(sampler.window(2, 7, i));
    for (std::size_t t = 0; t < 16; ++t) {
      const auto at = static_cast<std::size_t>(i) * 16 + t;
      CHECK(values(a.tokens)[at] == static_cast<unsigned char>(text[begin + t]));
      CHECK(values(a.targets)[at] == static_cast<unsigned char>(text[begin + t + 1]));
    }
  }
  CHECK(values(sampler.micro_batch(2, 6).tokens) != values(a.tokens));
  CHECK(values(sampler.micro_batch(3, 7).tokens) != values(a.tokens));
  CHECK(values(Sampler(data, 6, 3, 16).micro_batch(2, 7).tokens) != values(a.tokens));
  CHECK(values(sampler.micro_batch((std::int64_t{1} << 32) + 2, 7).tokens) != values(a.tokens));
}

TEST_CASE("windows lie inside the data and reach both ends", "[data]") {
  const TokenData data = TokenData::from_text("0123456789", "text", 256);
  const Sampler sampler(data, 1, 1, 7);
  std::set<std::int64_t> seen;
  for (std::int64_t step = 0; step < 100; ++step) seen.insert(sampler.window(step, 0, 0));
  CHECK(seen == std::set<std::int64_t>{0, 1, 2});
}

TEST_CASE("the ranks of every W see the same global batch", "[data]") {
  const TokenData data = TokenData::from_text(std::string(5000, 'x'), "text", 256);
  const Sampler sampler(data, 1, 2, 16);
  for (const int world_size : {1, 2, 4, 8}) {
    for (const bool no_sync : {false, true}) {
      const int micro_steps = 8 / world_size;
      const optim::StepPlan plan{micro_steps, no_sync ? micro_steps : 1};
      std::multiset<std::int64_t> windows;
      for (int rank = 0; rank < world_size; ++rank) {
        for (int m = 0; m < micro_steps; ++m) {
          windows.insert(sampler.window(3, plan.micro_batch(m, rank, world_size), 1));
        }
      }
      std::multiset<std::int64_t> expected;
      for (int j = 0; j < 8; ++j) expected.insert(sampler.window(3, j, 1));
      CHECK(windows == expected);
    }
  }
}

TEST_CASE("data that cannot be read are a sentence with their name", "[data]") {
  const auto refused = [](const std::filesystem::path& path) {
    return message_of<InputError>([&] { TokenData::open({path.string(), "auto"}, 256); });
  };
  const TemporaryFolder folder;
  std::filesystem::create_symlink(folder / "loop", folder / "loop");
  CHECK_THAT(refused(folder / "loop"), contains("data.path: " + (folder / "loop").string() +
                                                ": Too many levels of symbolic links"));
  io::write_text_atomically(folder / "file", "text");
  CHECK_THAT(refused(folder / "file/below"), contains("file/below: no such file or folder"));
  CHECK_THAT(refused(folder / std::string(300, 'x')), contains("File name too long"));
  CHECK_THAT(refused("/dev/zero"), contains("data.path: /dev/zero: is a device"));
  // In a folder a link to nowhere is passed over, like everything that is no source.
  io::write_text_atomically(folder / "a.md", "text");
  CHECK(source_text(folder.path()) == "text");
}

}  // namespace fsdp::train
