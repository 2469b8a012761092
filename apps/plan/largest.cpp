#include "plan/largest.h"

#include "base/check.h"
#include "plan/choices.h"
#include "plan/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdp::plan {

using paper::MemoryOptions;

LargestBatch largest_batch(const Evaluator& evaluator, MemoryOptions options, std::int64_t memory) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const auto bytes_of = [&](std::int64_t batch) {
    options.batch = batch;
    Outcome outcome = evaluator.in_use(options);  // refuses what has no number
    evaluator.add_beside(outcome);
    return outcome.memory();
  };
  LargestBatch found{.batch = 0, .nbytes = bytes_of(1), .over = 0};
  found.over = found.nbytes;
  if (found.nbytes > memory) return found;
  std::int64_t fits = 1, over = 2;
  while (over < kMost && bytes_of(over) <= memory) fits = std::exchange(over, 2 * over);
  if (over >= kMost) {
    throw InputError(fmt::format(
        "--memory: {} sequences fit into {} bytes; give a smaller memory, or a larger model", fits,
        memory));
  }
  while (over - fits > 1) {
    const std::int64_t middle = fits + (over - fits) / 2;
    (bytes_of(middle) <= memory ? fits : over) = middle;
  }
  for (std::int64_t more = over + 1; evaluator.knows_beside() && more <= over + 8; ++more) {
    if (bytes_of(more) <= memory) fits = more;
  }
  return {fits, bytes_of(fits), bytes_of(fits + 1)};
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
