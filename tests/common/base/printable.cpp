#include "base/printable.h"

#include "support/catch.h"

#include <string>

using fsdp::printable;
using fsdp::printable_lines;

TEST_CASE("text that can be seen is shown as it is") {
  for (const char* text : {"", "tiny.toml", "a \"b\" \\ c", "Größe ½ 東京 🙂"}) {
    CHECK(printable(text) == text);
    CHECK(printable_lines(text) == text);
  }
}

TEST_CASE("what moves the cursor, hides or reverses is shown as an escape") {
  CHECK(printable("a\nb\tc\r") == "a\\nb\\tc\\x0d");
  CHECK(printable("\x1b[2J\x7f") == "\\x1b[2J\\u007f");
  CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\u009b1m \u202etxt \ufeff") == "\\u009b1m \\u202etxt \\ufeff");
  CHECK(printable_lines("a\nb\tc\r\x1b") == "a\nb\tc\\x0d\\x1b");
}

TEST_CASE("bytes that are no UTF-8 are shown one by one") {
  CHECK(printable("\xff"
                  "a") == "\\xffa");
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");           // longer than needed
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // half of a pair
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(printable("ab\xe6\x9d") == "ab\\xe6\\x9d");  // cut off
}

TEST_CASE("a long text ends after so many characters") {
  CHECK(printable(std::string(200, 'x')) == std::string(200, 'x'));
  CHECK(printable(std::string(3'000'000, 'x')) == std::string(200, 'x') + "...");
  CHECK(printable("東京都", 2) == "東京...");
  CHECK(printable_lines(std::string(300, '\n')) == std::string(300, '\n'));
  CHECK(printable_lines("abc\n\n", 4) == "abc\n...");
}
