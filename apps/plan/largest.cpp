#include "plan/largest.h"

#include "base/check.h"
#include "paper/memory_formula.h"
#include "plan/choices.h"
#include "plan/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp::plan {

using paper::MemoryOptions;

namespace {

/// The largest B for which `fits` is true, if it is for all smaller ones; 0: for none.
template <class Fits>
std::int64_t largest_where(const Fits& fits, std::int64_t memory) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (!fits(1)) return 0;
  std::int64_t least = 1, over = 2;
  while (over < kMost && fits(over)) least = std::exchange(over, 2 * over);
  if (over >= kMost) {
    throw InputError(fmt::format(
        "--memory: {} sequences fit into {} bytes; give a smaller memory, or a larger model", least,
        memory));
  }
  while (over - least > 1) {
    const std::int64_t middle = least + (over - least) / 2;
    (fits(middle) ? least : over) = middle;
  }
  return least;
}

}  // namespace

LargestBatch largest_batch(const Evaluator& evaluator, MemoryOptions options, std::int64_t memory) {
  constexpr std::int64_t kTried = 256;
  const auto bytes_of = [&](std::int64_t batch) {
    options.batch = batch;
    Outcome outcome = evaluator.in_use(options);  // refuses what has no number
    evaluator.add_beside(outcome);
    return outcome.memory();
  };
  const std::int64_t outside = evaluator.knows_beside() ? paper::kOutsideBytes : 0;
  std::int64_t batch = largest_where(
      [&](std::int64_t each) {
        options.batch = each;
        return evaluator.in_use(options).device.total() + outside <= memory;
      },
      memory);
  const std::int64_t last =
      evaluator.knows_beside() ? std::max(batch - kTried, std::int64_t{0}) : batch;
  while (batch > last && bytes_of(batch) > memory) --batch;
  if (evaluator.knows_beside() && batch == last && batch > 0) {
    batch = largest_where([&](std::int64_t each) { return bytes_of(each) <= memory; }, memory);
  }
  return {batch, bytes_of(std::max(batch, std::int64_t{1})), bytes_of(batch + 1)};
}

std::string largest_text(const LargestBatch& found, const MemoryOptions& options,
                         std::int64_t memory) {
  MemoryOptions chosen = options;
  chosen.batch = std::max<std::int64_t>(found.batch, 1);
  std::string text = describe(chosen) + "\n";
  if (found.batch == 0) {
    return text + fmt::format(
                      "not even one sequence fits: it takes {} of {} bytes; shard over "
                      "more ranks, or checkpoint activations\n",
                      found.nbytes, memory);
  }
  return text + fmt::format(
                    "largest micro-batch: {} sequence{}\n  {:>6}: {} bytes ({}), of {}\n"
                    "  {:>6}: {} bytes ({}), which is {} too many\n",
                    found.batch, found.batch == 1 ? "" : "s", found.batch, found.nbytes,
                    show_memory(found.nbytes), memory, found.batch + 1, found.over,
                    show_memory(found.over), found.over - memory);
}

}  // namespace fsdp::plan
