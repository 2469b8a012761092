#include "base/utf8.h"

#include "support/catch.h"

#include <string>

using fsdp::first_character;

TEST_CASE("a character of UTF-8 has one to four bytes") {
  const auto is = [](const std::string& text, std::size_t nbytes, std::uint32_t code) {
    const fsdp::Utf8Character first = first_character(text + "more");
    CAPTURE(text);
    CHECK(first.nbytes == nbytes);
    CHECK(first.code == code);
    CHECK(first.is_utf8);
  };
  is("a", 1, 'a');
  is("\u00fc", 2, 0xFC);
  is("\u20ac", 3, 0x20AC);
  is("\ud7ff", 3, 0xD7FF);
  is("\U0001f600", 4, 0x1F600);
  is("\U0010ffff", 4, 0x10FFFF);
}

TEST_CASE("a byte that begins no character is one by itself") {
  for (const char* text : {"\x80", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                           "\xf4\x90\x80\x80", "\xff\xff", "\xe2\x82", "\xc3"}) {
    const fsdp::Utf8Character first = first_character(text);
    CAPTURE(text);
    CHECK(first.nbytes == 1);
    CHECK(first.code == static_cast<unsigned char>(text[0]));
    CHECK_FALSE(first.is_utf8);
  }
}
