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

LargestBatch largest_batch(Evaluator& evaluator, MemoryOptions options, std::int64_t all) {
  const std::int64_t memory = all - paper::beside_peak(evaluator.model(), options);
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const auto peak_of = [&](std::int64_t batch) {
    options.batch = batch;
    return evaluator.memory(options);
  };
  LargestBatch found{.batch = 0, .peak = peak_of(1), .over = {}};
  found.over = found.peak;
  if (found.peak.total() > memory) return found;
  std::int64_t fits = 1, over = 2;
  while (over < kMost && peak_of(over).total() <= memory) fits = std::exchange(over, 2 * over);
  if (over >= kMost) {
    throw InputError(fmt::format(
        "--memory: {} sequences fit into {} bytes; give a smaller memory, or a larger model", fits,
        all));
  }
  while (over - fits > 1) {
    const std::int64_t middle = fits + (over - fits) / 2;
    (peak_of(middle).total() <= memory ? fits : over) = middle;
  }
  return {fits, peak_of(fits), peak_of(over)};
}

std::string largest_text(const LargestBatch& found, const MemoryOptions& options,
                         std::int64_t memory, std::int64_t beside) {
  MemoryOptions chosen = options;
  chosen.batch = std::max<std::int64_t>(found.batch, 1);
  std::string text = describe(chosen) + "\n";
  if (beside > 0) {
    text +=
        fmt::format("beside what is in use, the allocator and CUDA take {}\n", show_memory(beside));
    memory -= beside;
  }
  if (found.batch == 0) {
    return text + fmt::format(
                      "not even one sequence fits: it takes {} of {} bytes; shard over "
                      "more ranks, or checkpoint activations\n",
                      found.peak.total(), memory);
  }
  return text + fmt::format(
                    "largest micro-batch: {} sequence{}\n  {:>6}: {} bytes ({}), of {}\n"
                    "  {:>6}: {} bytes ({}), which is {} too many\n",
                    found.batch, found.batch == 1 ? "" : "s", found.batch, found.peak.total(),
                    show_memory(found.peak.total()), memory, found.batch + 1, found.over.total(),
                    show_memory(found.over.total()), found.over.total() - memory);
}

}  // namespace fsdp::plan
