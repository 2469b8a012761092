#include "device/free_blocks.h"

#include "support/catch.h"

#include <random>
#include <vector>

using namespace fsdp;

TEST_CASE("the lowest address that fits is taken") {
  FreeBlocks free;
  free.add(1000, 64);
  free.add(2000, 640);
  free.add(4000, 128);
  CHECK(free.take(128) == FreeBlocks::Address{2000});
  CHECK(free.take(64) == FreeBlocks::Address{1000});
  CHECK(free.take(500) == FreeBlocks::Address{2128});
  CHECK(free.take(64) == FreeBlocks::Address{4000});
  CHECK_FALSE(free.take(640).has_value());
  CHECK(free.total() == 12 + 64);
}

TEST_CASE("neighbors become one block, whatever the order they come back in") {
  for (const auto& order :
       std::vector<std::vector<FreeBlocks::Address>>{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    FreeBlocks free;
    for (const auto index : order) free.add(4096 + index * 64, 64);
    CHECK(free.count() == 1);
    CHECK(free.take(192) == FreeBlocks::Address{4096});
    CHECK(free.count() == 0);
  }
}

TEST_CASE("it agrees with a map of single cells") {
  constexpr std::size_t kCells = 256;
  std::vector<bool> is_free(kCells, true);
  std::mt19937 random(5);
  FreeBlocks free;
  free.add(0x10000, kCells);
  std::vector<std::pair<std::size_t, std::size_t>> taken;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 2 == 0 || taken.empty()) {
      const std::size_t wanted = 1 + random() % (random() % 8 == 0 ? 64 : 9);
      std::size_t begin = 0;
      for (std::size_t run = 0; begin + run < kCells && run < wanted;) {
        if (is_free[begin + run]) {
          ++run;
        } else {
          begin += run + 1;
          run = 0;
        }
      }
      const auto address = free.take(wanted);
      REQUIRE(address.has_value() == (begin + wanted <= kCells));
      if (!address) continue;
      REQUIRE(*address == 0x10000 + begin);
      for (std::size_t i = 0; i < wanted; ++i) is_free[begin + i] = false;
      taken.emplace_back(begin, wanted);
    } else {
      const std::size_t victim = random() % taken.size();
      const auto [begin, count] = taken[victim];
      taken[victim] = taken.back();
      taken.pop_back();
      free.add(0x10000 + begin, count);
      for (std::size_t i = 0; i < count; ++i) is_free[begin + i] = true;
    }
    std::size_t runs = 0;
    for (std::size_t i = 0; i < kCells; ++i) runs += is_free[i] && (i == 0 || !is_free[i - 1]);
    REQUIRE(free.count() == runs);
  }
}
