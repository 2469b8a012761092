// What a file given as data looks like, where it is not what data.format says.
#include "base/check.h"
#include "io/file_io.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "train/data.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::train {
namespace {

using namespace std::string_literals;
using testing::TemporaryFolder;

constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

std::string complaint(const std::string& bytes, const std::string& format,
                      std::int64_t vocabulary = 50304) {
  const TemporaryFolder folder;
  io::write_text_atomically(folder / "file.bin", bytes);
  return message_of<InputError>([&] {
    TokenData::open({folder / "file.bin", format}, vocabulary);
  });
}

template <class Token>
std::string bytes_of(const std::vector<Token>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token)};
}

// Every character followed by a NUL, or after one.
std::string utf16(const std::string& text, bool is_big) {
  std::string wide;
  for (const char c : text) wide += is_big ? "\0"s + c : c + "\0"s;
  return wide;
}

}  // namespace

TEST_CASE("raw tokens of another kind are refused with what they look like", "[data]") {
  const std::string rest(128, '\x05');
  for (const char* format : {"uint16", "uint32", "tokens"}) {
    CAPTURE(format);
    CHECK_THAT(complaint("\x93NUMPY\x01\0v\0{'descr'"s + rest, format),
               contains("holds no tokens alone, but looks like an array of NumPy; write its tokens "
                        "alone, by array.astype(\"uint16\").tofile(\"tokens.bin\"), and set "
                        "data.format to uint16 (uint32 for both if the vocabulary is larger"));
    CHECK_THAT(complaint("\x1f\x8b\x08\0"s + rest, format), contains("compressed by gzip; unpack"));
    CHECK_THAT(complaint("\x10\0\0\0\0\0\0\0{\""s + rest + "ab", format),
               contains("weights in a safetensors file"));
    CHECK_THAT(complaint(kPointer, format),
               contains("looks like a pointer of Git LFS, which stands for a file that was not "
                        "fetched; run git lfs pull where it was cloned"));
  }
}

TEST_CASE("raw tokens of the other width are refused", "[data]") {
  // The second is of a vocabulary beyond 16 bits, where some upper halves are 1.
  for (const std::uint32_t step : {1237U, 12345U}) {
    std::vector<std::uint32_t> wide;
    for (std::uint32_t i = 0; i < 10; ++i) wide.push_back(i * step);
    CHECK(complaint(bytes_of(wide), "uint32", 128256).empty());
    for (const std::int64_t vocabulary : {50304, 65536, 128256}) {
      CHECK_THAT(
          complaint(bytes_of(wide), "uint16", vocabulary),
          contains("data.path: ") && contains("file.bin: every second token is 3 at most, as in "
                                              "tokens of 32 bits that are read by halves; set "
                                              "data.format to uint32"));
    }
  }
  std::vector<std::uint16_t> narrow;
  for (unsigned i = 0; i < 20; ++i) narrow.push_back(static_cast<std::uint16_t>(i * 2500));
  CHECK(complaint(bytes_of(narrow), "uint16").empty());
  for (const std::int64_t vocabulary : {50304, 128256, 1 << 20}) {
    CHECK_THAT(complaint(bytes_of(narrow), "uint32", vocabulary),
               contains("most of its tokens are larger than any vocabulary, as tokens of 16 bits "
                        "are if they are read in pairs; set data.format to uint16"));
  }
  narrow.pop_back();
  CHECK_THAT(complaint(bytes_of(narrow), "uint32"),
             contains("has 38 bytes, which are no whole tokens of 4; set data.format to uint16"));
  // A vocabulary of a few tokens may have any of them in every second place.
  CHECK(complaint(bytes_of(std::vector<std::uint16_t>(20, 0)), "uint16").empty());
  CHECK(complaint(bytes_of(std::vector<std::uint16_t>(20, 3)), "uint16").empty());
  // One wrong token is not all of them.
  std::vector<std::uint32_t> wrong(20, 7);
  wrong[4] = 0xFFFFFFFF;
  CHECK_THAT(complaint(bytes_of(wrong), "uint32"),
             contains("token 4294967295 at position 4 is outside the vocabulary of 50304"));
}

TEST_CASE("a pointer of Git LFS is no text", "[data]") {
  for (const char* format : {"auto", "text"}) {
    CHECK_THAT(complaint(kPointer, format),
               contains("is no text, but looks like a pointer of Git LFS"));
  }
  CHECK(complaint(kPointer, "bytes").empty());
  // A text about pointers is longer.
  CHECK(complaint(kPointer + std::string(1024, 'x'), "auto").empty());
}

TEST_CASE("text in UTF-16 is named, with the command that converts it", "[data]") {
  const std::string text = "To be, or not to be\n";
  const auto in = [&](const char* encoding, const std::string& bytes) {
    CHECK_THAT(complaint(bytes, "auto"),
               contains("is no text in UTF-8, but looks like text in "s + encoding +
                        "; convert it (iconv -f " + encoding + " -t UTF-8)"));
  };
  in("UTF-16", "\xff\xfe" + utf16(text, false));
  in("UTF-16", "\xfe\xff" + utf16(text, true));
  in("UTF-16", "\xff\xfe\x1f\x04\x40\x04"s);  // no NUL
  in("UTF-32", "\xff\xfe\0\0T\0\0\0o\0\0\0"s);
  in("UTF-16LE", utf16(text, false));
  in("UTF-16BE", utf16(text, true));
  in("UTF-16LE", utf16(text + text + "f\xfcr", false));  // ü
  // Tokens below 256 are not letters alone.
  CHECK_THAT(complaint(bytes_of(std::vector<std::uint16_t>{1, 200, 3, 4, 5, 6, 7, 64}), "auto"),
             contains("byte 1 is NUL. If it holds tokens alone"));
}

TEST_CASE("a file of a folder that is no text is named", "[data]") {
  const TemporaryFolder folder;
  io::write_text_atomically(folder / "a.md", "text\n");
  const auto open = [&](const char* format) {
    return TokenData::open({folder.path(), format}, 256).size();
  };
  CHECK(open("auto") == 5);
  for (const auto& [bytes, what] :
       {std::pair{"a\0b"s, "b.txt: is no text: byte 1 is NUL"},
        {"\xff\xfe"s + utf16("text", false),
         "b.txt: is no text in UTF-8, but looks like text in "
         "UTF-16"},
        {kPointer, "b.txt: is no text, but looks like a pointer of Git LFS"}}) {
    io::write_text_atomically(folder / "b.txt", bytes);
    const auto refused = [&, what = what](const char* format) {
      CHECK_THAT(message_of<InputError>([&] { open(format); }),
                 contains("data.path: " + (folder / what).string()));
    };
    refused("auto");
    refused("text");
    CHECK(open("bytes") == 5 + static_cast<std::int64_t>(bytes.size()));
  }
}

}  // namespace fsdp::train
