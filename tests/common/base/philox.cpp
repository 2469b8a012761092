#include "base/philox.h"

#include "support/catch.h"

#include <set>

using namespace fsdp;
using Words = std::array<std::uint32_t, 4>;

// The known answers published with the paper's library (Random123, philox4x32 with 10 rounds).
TEST_CASE("Philox gives the published answers") {
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint32_t ones = 0xffffffff;
  CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a word of a stream is a word of the block it stands in") {
  const std::uint64_t seed = 0x0123456789abcdef;
  const std::uint64_t block = 0xfedcba9876543210 / 4;
  const Words words =
      philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
                 {0x89abcdef, 0x01234567});
  for (std::uint64_t lane = 0; lane < 4; ++lane) {
    CHECK(random_word(seed, block * 4 + lane) == words[lane]);
  }
  CHECK(random_word(0, 0) == 0x6627e8d5);
}

TEST_CASE("streams of different seeds, and words of one stream, differ") {
  std::set<std::uint32_t> words;
  for (std::uint64_t seed : {0ull, 1ull, 1ull << 32}) {
    for (std::uint64_t index = 0; index < 100; ++index) words.insert(random_word(seed, index));
  }
  CHECK(words.size() == 300);
}

TEST_CASE("a generator hands out indices, each once") {
  Generator generator(7);
  CHECK(generator.reserve(10) == 0);
  CHECK(generator.reserve(0) == 10);
  CHECK(generator.reserve(5) == 10);
  CHECK(generator.offset() == 15);
  Generator copy = generator;
  CHECK(copy == generator);
  copy.set_offset(0);
  CHECK_FALSE(copy == generator);
  CHECK_FALSE(Generator(1) == Generator(2));
}
