#include "device/thread_pool.h"

#include "base/check.h"
#include "support/catch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

using namespace fsdp;

TEST_CASE("every chunk runs once, whatever the number of threads") {
  for (const int threads : {1, 2, 3, 4}) {
    for (const bool spin : {false, true}) {
      ThreadPool pool(threads, spin);
      CHECK(pool.threads() == threads);
      for (const std::int64_t chunks : {0, 1, 2, 3, 7, 100}) {
        std::vector<int> runs(static_cast<std::size_t>(chunks), 0);
        pool.for_each(chunks, [&](std::int64_t chunk, std::byte*) {
          ++runs[static_cast<std::size_t>(chunk)];
        });
        CHECK(runs == std::vector<int>(static_cast<std::size_t>(chunks), 1));
      }
    }
  }
}

TEST_CASE("kernels follow each other without losing a chunk") {
  for (const bool spin : {false, true}) {
    ThreadPool pool(3, spin);
    std::vector<std::int64_t> sums(5, 0);
    for (int kernel = 0; kernel < 2000; ++kernel) {
      const std::int64_t chunks = 2 + kernel % 4;
      pool.for_each(chunks, [&](std::int64_t chunk, std::byte*) {
        sums[static_cast<std::size_t>(chunk)] += kernel;
      });
    }
    CHECK(sums[0] == 1999000);
    CHECK(sums[1] == 1999000);
    CHECK(sums[4] == 500500);  // kernels 3, 7, …, 1999
  }
}

TEST_CASE("each thread has its own aligned scratch") {
  ThreadPool pool(4);
  std::vector<std::byte*> scratch(64, nullptr);
  pool.for_each(64, [&](std::int64_t chunk, std::byte* mine) {
    std::memset(mine, static_cast<int>(chunk), kScratchBytes);
    std::this_thread::yield();
    if (mine[0] != static_cast<std::byte>(chunk) ||
        mine[kScratchBytes - 1] != static_cast<std::byte>(chunk)) {
      fail("another thread wrote into this scratch");
    }
    scratch[static_cast<std::size_t>(chunk)] = mine;
  });
  const std::set<std::byte*> arenas(scratch.begin(), scratch.end());
  CHECK(arenas.size() <= 4);
  CHECK(std::all_of(arenas.begin(), arenas.end(), [](std::byte* arena) {
    return reinterpret_cast<std::uintptr_t>(arena) % 64 == 0;
  }));
}

TEST_CASE("two threads really work at the same time") {
  ThreadPool pool(2);
  std::atomic<int> arrived = 0;
  // Each chunk waits for the other: with one thread this would never end.
  pool.for_each(2, [&](std::int64_t, std::byte*) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  CHECK(arrived == 2);
}

TEST_CASE("one thread means the caller, in order") {
  ThreadPool pool(1);
  std::vector<std::int64_t> order;
  pool.for_each(5, [&](std::int64_t chunk, std::byte*) { order.push_back(chunk); });
  CHECK(order == std::vector<std::int64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("the lowest chunk that throws is heard, and the pool lives on") {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> inside = 0;
      const std::string message = message_of<Error>([&] {
        pool.for_each(40, [&](std::int64_t chunk, std::byte*) {
          ++inside;
          if (chunk >= 7 && chunk % 2 == 1) {
            --inside;
            fail("chunk {}", chunk);
          }
          --inside;
        });
      });
      CHECK(message == "chunk 7");
      CHECK(inside == 0);  // nobody is still at work
    }
    int runs = 0;
    pool.for_each(1, [&](std::int64_t, std::byte*) { ++runs; });
    CHECK(runs == 1);
  }
}

TEST_CASE("all chunks below one that throws run") {
  for (const bool spin : {false, true}) {
    ThreadPool pool(4, spin);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> runs(41);
      CHECK_THROWS_AS(pool.for_each(41,
                                    [&](std::int64_t chunk, std::byte*) {
                                      ++runs[static_cast<std::size_t>(chunk)];
                                      if (chunk >= 39) fail("chunk {}", chunk);
                                    }),
                      Error);
      CHECK(std::count(runs.begin(), runs.begin() + 40, 1) == 40);
    }
  }
}

TEST_CASE("a kernel inside a kernel is refused") {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    const std::string message = message_of<Error>([&] {
      pool.for_each(
          2, [&](std::int64_t, std::byte*) { pool.for_each(1, [](std::int64_t, std::byte*) {}); });
    });
    CHECK_THAT(message, contains("from inside a chunk"));
  }
}

TEST_CASE("a pool without threads is refused") { CHECK_THROWS_AS(ThreadPool(0), Error); }

TEST_CASE("pools come and go, used or not") {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3, i % 2 == 0);
    if (i % 3 == 0) pool.for_each(4, [](std::int64_t, std::byte*) {});
  }
}
