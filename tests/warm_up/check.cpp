// The warm-up's test. It needs no library, so that it is compiled in seconds: it calls shard_range
// for every rank of a few worlds, and prints one line, or the first mistake with its likely cause.
#include "warm_up/shard_range.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

using namespace fsdp;

namespace {

/// N elements on W ranks.
struct World {
  std::int64_t numel;
  int world_size;

  std::int64_t quotient() const { return numel / world_size; }
  std::int64_t rest() const { return numel % world_size; }
  std::int64_t shard_numel() const { return quotient() + (rest() != 0 ? 1 : 0); }  ///< n
};

constexpr World kWorlds[] = {
    {12, 4},             // W divides N
    {10, 4},             // the last rank has padding
    {7, 3},              // so it has here
    {5, 4},              // the last rank has padding only
    {2, 8},              // and here most of them
    {10, 1},             // one rank keeps all
    {0, 2},              // there is nothing to keep
    {3'000'000'001, 4},  // more than 32 bits, or a float, can count
};

using Formula = ShardRange (*)(World, std::int64_t rank);

ShardRange right(World w, std::int64_t r) {
  const std::int64_t n = w.shard_numel();
  return {std::min(r * n, w.numel), std::min((r + 1) * n, w.numel)};
}

struct Mistake {
  Formula formula;
  const char* sentence;
};

// What is often written instead.
constexpr Mistake kMistakes[] = {
    {[](World w, std::int64_t r) {
       return ShardRange{r * w.quotient(), (r + 1) * w.quotient()};
     },
     "N / W rounds down, so the last elements belong to no rank. Round up."},
    {[](World w, std::int64_t r) {
       const bool last = r + 1 == w.world_size;
       return ShardRange{r * w.quotient(), last ? w.numel : (r + 1) * w.quotient()};
     },
     "The last rank takes what N / W leaves over. An all-gather joins pieces of one length: round "
     "up, and let the last piece have padding."},
    {[](World w, std::int64_t r) {
       return ShardRange{r * w.quotient() + std::min(r, w.rest()),
                         (r + 1) * w.quotient() + std::min(r + 1, w.rest())};
     },
     "Some pieces are one element longer. An all-gather joins pieces of one length: round up, and "
     "let the last piece have padding."},
    {[](World w, std::int64_t r) {
       return ShardRange{r * w.shard_numel(), (r + 1) * w.shard_numel()};
     },
     "The range leaves the vector: element N and those after it are padding."},
    {[](World w, std::int64_t r) {
       return ShardRange{r * w.shard_numel(), std::min((r + 1) * w.shard_numel(), w.numel)};
     },
     "The range begins behind the vector's end: `begin` must not pass N either."},
    {[](World w, std::int64_t r) {
       return ShardRange{right(w, r).begin, right(w, r).end - 1};
     },
     "`end` is the first element that the rank does not keep, not the last one that it keeps."},
    {[](World w, std::int64_t r) {
       return ShardRange{right(w, r).begin, right(w, r).end - right(w, r).begin};
     },
     "`end` is a position in the vector, not a length."},
};

bool same(ShardRange a, ShardRange b) { return a.begin == b.begin && a.end == b.end; }

bool fits(const std::vector<ShardRange>& returned, World w, Formula formula) {
  for (std::size_t r = 0; r < returned.size(); ++r) {
    if (!same(returned[r], formula(w, static_cast<std::int64_t>(r)))) return false;
  }
  return true;
}

std::string cause(const std::vector<ShardRange>& returned, World w) {
  for (const Mistake& mistake : kMistakes) {
    if (fits(returned, w, mistake.formula)) return mistake.sentence;
  }
  if (w.numel > INT32_MAX) {
    return "Short vectors are right, so a count went through 32 bits or a float.";
  }
  return "Rank r begins at element r·n, where n = ceil(N / W) is " +
         std::to_string(w.shard_numel()) + ".";
}

std::string show(ShardRange range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

/// Prints a line that begins with `word`, which has a color on a terminal.
int report(bool good, const char* word, const std::string& text) {
  const bool colored = isatty(STDOUT_FILENO) != 0;
  std::printf("%s%s%s  %s\n", colored ? (good ? "\033[32m" : "\033[31m") : "", word,
              colored ? "\033[0m" : "", text.c_str());
  return good ? 0 : 1;
}

/// 0 if every rank of `w` got its own elements.
int check(World w) {
  std::vector<ShardRange> returned;
  for (int rank = 0; rank < w.world_size; ++rank) {
    returned.push_back(shard_range(w.numel, w.world_size, rank));
  }
  for (std::size_t r = 0; r < returned.size(); ++r) {
    const ShardRange expected = right(w, static_cast<std::int64_t>(r));
    if (same(returned[r], expected)) continue;
    return report(false, "FAILED",
                  "N = " + std::to_string(w.numel) + ", W = " + std::to_string(w.world_size) +
                      ": rank " + std::to_string(r) + " keeps " + show(expected) +
                      ", but shard_range returned " + show(returned[r]) + ".\n        " +
                      cause(returned, w));
  }
  return 0;
}

}  // namespace

int main() {
  try {
    for (const World& w : kWorlds) {
      if (check(w) != 0) return 1;
    }
  } catch (const NotWritten&) {
    return report(false, "FAILED",
                  "shard_range is not written yet: see tasks/warm_up/shard_range.cpp.");
  } catch (const std::exception& error) {
    return report(false, "FAILED", std::string("shard_range threw: ") + error.what());
  }
  return report(true, "passed", "Every element has one owner. Next: writeup/0_why_sharding.md");
}
