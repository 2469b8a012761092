#include "device/allocator.h"

#include "base/check.h"
#include "support/catch.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <vector>

using namespace fsdp;
using Kind = MemoryKind;
using Maker = decltype(&make_cpu_allocator);

namespace {

std::shared_ptr<MemoryTracker> new_tracker() { return std::make_shared<MemoryTracker>(); }

std::shared_ptr<Allocator> make_regions(std::shared_ptr<MemoryTracker> tracker) {
  return make_region_allocator(std::move(tracker));
}

const Maker kMakers[] = {make_cpu_allocator, make_regions, make_heap_allocator};

}  // namespace

TEST_CASE("blocks are aligned, separate and counted to the byte") {
  for (const auto make : kMakers) {
    const auto tracker = new_tracker();
    const auto allocator = make(tracker);
    std::vector<std::pair<Allocator::Block, std::size_t>> blocks;
    std::int64_t total = 0;
    for (const std::size_t nbytes : {1u, 63u, 64u, 65u, 4096u, 1'000'000u, 3u}) {
      const auto block = allocator->allocate(nbytes, Kind::temp, nullptr);
      CHECK(reinterpret_cast<std::uintptr_t>(block.bytes) % 64 == 0);
      std::memset(block.bytes, static_cast<int>(blocks.size()), nbytes);
      blocks.emplace_back(block, nbytes);
      total += static_cast<std::int64_t>(nbytes);
    }
    CHECK(tracker->current()[Kind::temp] == total);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto [block, nbytes] = blocks[i];
      CHECK(block.bytes[0] == static_cast<std::byte>(i));
      CHECK(block.bytes[nbytes - 1] == static_cast<std::byte>(i));
      allocator->release(block, nbytes);
    }
    CHECK(tracker->current_total() == 0);
    CHECK(tracker->peak_total() == total);
  }
}

TEST_CASE("zero bytes are a block too") {
  const auto tracker = new_tracker();
  const auto allocator = make_cpu_allocator(tracker);
  const auto block = allocator->allocate(0, Kind::temp, nullptr);
  CHECK(block.bytes == nullptr);
  allocator->release(block, 0);
  CHECK(tracker->current_total() == 0);
}

TEST_CASE("the same request finds the same block again, S6") {
  const auto allocator = make_region_allocator(new_tracker());
  const auto below = allocator->allocate(300, Kind::temp, nullptr);
  const auto first = allocator->allocate(1000, Kind::temp, nullptr);
  const auto above = allocator->allocate(300, Kind::temp, nullptr);
  allocator->release(first, 1000);
  const auto again = allocator->allocate(1000, Kind::temp, nullptr);
  CHECK(again.bytes == first.bytes);
  for (const auto& block : {below, above}) allocator->release(block, 300);
  allocator->release(again, 1000);
}

TEST_CASE("freed neighbors serve a larger request") {
  const auto allocator = make_region_allocator(new_tracker());
  std::vector<Allocator::Block> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocator->allocate(64, Kind::temp, nullptr));
  const auto wall = allocator->allocate(64, Kind::temp, nullptr);
  for (const int i : {3, 1, 7, 5, 0, 2, 6, 4}) {
    allocator->release(blocks[static_cast<std::size_t>(i)], 64);
  }
  const auto large = allocator->allocate(512, Kind::temp, nullptr);
  CHECK(large.bytes == blocks[0].bytes);
  allocator->release(large, 512);
  allocator->release(wall, 64);
}

TEST_CASE("repeated steps use the same addresses and no more memory") {
  const auto allocator = make_region_allocator(new_tracker());
  const auto parameters = allocator->allocate(10'000, Kind::sharded_param, nullptr);
  const auto step = [&] {
    std::vector<std::byte*> addresses;
    std::vector<std::pair<Allocator::Block, std::size_t>> alive;
    for (std::size_t i = 0; i < 200; ++i) {
      const std::size_t nbytes = (i * 7919) % 5000 + 1;
      alive.emplace_back(allocator->allocate(nbytes, Kind::activation, nullptr), nbytes);
      addresses.push_back(alive.back().first.bytes);
      if (i % 3 == 0) {
        const auto [block, size] = alive[alive.size() / 2];
        alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(alive.size() / 2));
        allocator->release(block, size);
      }
    }
    for (const auto& [block, size] : alive) allocator->release(block, size);
    return addresses;
  };
  const auto first = step();
  const std::size_t reserved = allocator->reserved();
  for (int i = 0; i < 5; ++i) CHECK(step() == first);
  CHECK(allocator->reserved() == reserved);
  allocator->release(parameters, 10'000);
}

TEST_CASE("reserved memory follows the high-water mark, not the address space") {
  const auto allocator = make_region_allocator(new_tracker());
  CHECK(allocator->reserved() == 0);
  const auto small = allocator->allocate(100, Kind::temp, nullptr);
  CHECK(allocator->reserved() == 128);
  const auto large = allocator->allocate(10'000, Kind::temp, nullptr);
  CHECK(allocator->reserved() == 128 + 10'048);
  allocator->release(large, 10'000);
  allocator->release(small, 100);
  CHECK(allocator->reserved() == 128 + 10'048);  // kept for the next step
}

TEST_CASE("a request larger than a region gets a region of its own") {
  const std::size_t mib = std::size_t{1} << 20;
  const auto allocator = make_region_allocator(new_tracker(), 4 * mib);
  const auto small = allocator->allocate(100, Kind::temp, nullptr);
  const auto large = allocator->allocate(9 * mib, Kind::temp, nullptr);
  large.bytes[0] = large.bytes[9 * mib - 1] = std::byte{1};
  CHECK(allocator->reserved() == 128 + 9 * mib);
  const auto next = allocator->allocate(100, Kind::temp, nullptr);
  CHECK(next.bytes != large.bytes);
  allocator->release(large, 9 * mib);
  const auto again = allocator->allocate(9 * mib, Kind::temp, nullptr);
  CHECK(again.bytes == large.bytes);
  allocator->release(again, 9 * mib);
  allocator->release(next, 100);
  allocator->release(small, 100);
  CHECK(allocator->reserved() <= 256 + 9 * mib);
}

TEST_CASE("fresh memory is NaN here, as in every checked build") {
  REQUIRE(fills_fresh_memory());
  for (const auto make : kMakers) {
    const auto allocator = make(new_tracker());
    for (int round = 0; round < 2; ++round) {
      const auto block = allocator->allocate(2 * sizeof(double), Kind::temp, nullptr);
      float single = 0;
      double number = 0;
      std::memcpy(&single, block.bytes, sizeof single);
      std::memcpy(&number, block.bytes + sizeof(double), sizeof number);
      CHECK(single != single);
      CHECK(number != number);
      std::memset(block.bytes, 0, 2 * sizeof(double));
      allocator->release(block, 2 * sizeof(double));
    }
  }
}

TEST_CASE("fake memory's sizes can round up to 512, T18, the CPU's do not") {
  const auto tracker = new_tracker();
  const auto rounding = make_fake_allocator(tracker, 512);
  for (const auto& [asked, counted] : std::vector<std::pair<std::size_t, std::int64_t>>{
           {0, 0}, {1, 512}, {512, 512}, {513, 1024}}) {
    const auto block = rounding->allocate(asked, Kind::temp, nullptr);
    CHECK(block.bytes == nullptr);
    CHECK(tracker->current_total() == counted);
    rounding->release(block, asked);
    CHECK(tracker->current_total() == 0);
  }
  CHECK(make_fake_allocator(tracker)->round_up(513) == 513);
  CHECK(make_cpu_allocator(tracker)->round_up(513) == 513);
  CHECK_THROWS_AS(make_fake_allocator(tracker, 0), Error);
}

TEST_CASE("fake memory is counted, not used") {
  const auto tracker = new_tracker();
  const auto allocator = make_fake_allocator(tracker);
  const std::size_t terabytes = std::size_t{5} << 40;
  const auto block = allocator->allocate(terabytes, Kind::sharded_param, nullptr);
  CHECK(tracker->current()[Kind::sharded_param] == static_cast<std::int64_t>(terabytes));
  CHECK(allocator->reserved() == terabytes);
  allocator->release(block, terabytes);
}

TEST_CASE("a limit refuses with the breakdown, and counts its refusals, T20") {
  const auto tracker = new_tracker();
  const auto allocator = make_cpu_allocator(tracker);
  allocator->set_limit(1000);
  const auto block = allocator->allocate(900, Kind::sharded_param, nullptr);
  const auto owner = std::make_shared<const Owner>(Owner{"blocks.1", "wq.weight"});
  const std::string message =
      message_of<Error>([&] { (void)allocator->allocate(101, Kind::unsharded_param, owner); });
  for (const char* part :
       {"101 bytes", "UNSHARDED_PARAM", "unit blocks.1, parameter wq.weight", "limit of 1000 bytes",
        "900 of which are in use", "SHARDED_PARAM 900", "Raise the limit"}) {
    CHECK_THAT(message, contains(part));
  }
  CHECK(allocator->refusals() == 1);
  CHECK(tracker->current_total() == 900);
  const auto rest = allocator->allocate(100, Kind::temp, nullptr);  // exactly full is fine
  allocator->set_limit(0);
  const auto more = allocator->allocate(5000, Kind::temp, nullptr);
  allocator->release(more, 5000);
  allocator->release(rest, 100);
  allocator->release(block, 900);
  CHECK(allocator->refusals() == 1);
}

namespace {

// Runs `body` in a child process with `extra` bytes of address space left. @return its answer.
template <class Body>
int in_limited_child(std::size_t extra, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t limit = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + extra;
    const rlimit as{limit, limit};
    setrlimit(RLIMIT_AS, &as);
    int answer = 99;
    try {
      answer = body();
    } catch (...) {
    }
    _exit(answer);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a limit on the address space is lived with, and running out is a clear error") {
  const std::size_t mib = std::size_t{1} << 20;
  CHECK(in_limited_child(64 * mib, [&] {
          const auto allocator = make_region_allocator(new_tracker());
          const auto a = allocator->allocate(10 * mib, Kind::temp, nullptr);
          const auto b = allocator->allocate(10 * mib, Kind::temp, nullptr);
          a.bytes[0] = b.bytes[10 * mib - 1] = std::byte{1};
          try {
            (void)allocator->allocate(100 * mib, Kind::temp, nullptr);
          } catch (const Error& error) {
            const std::string message = error.what();
            return message.find("out of memory") == 0 &&
                           message.find("TEMP 20971520") != std::string::npos
                       ? 7
                       : 1;
          }
          return 2;
        }) == 7);
}
