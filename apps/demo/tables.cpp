#include "demo/tables.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

namespace fsdp::train {

std::string trainings_table(const std::vector<std::string>& names,
                            const std::vector<BoundedRun>& runs) {
  std::string text =
      fmt::format("{:10} {:>2}  {:>10} {:>10}  {:>13} {:>12}  {:>12}  {:>9}\n", "strategy", "W",
                  "first loss", "last loss", "peak per rank", "the bound", "received", "tokens/s");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& [run, bound] = runs[i];
    text += fmt::format("{:10} {:>2}  {:>10.4f} {:>10.4f}  {:>13} {:>12}  {:>12}  {:>9.0f}\n",
                        names[i], run.world_size, run.losses.front(), run.losses.back(),
                        run.peak_bytes, bound, run.comm_bytes, run.tokens_per_second);
  }
  text.pop_back();
  return text;
}

std::string five_strategies_table(const std::vector<BoundedRun>& runs) {
  const auto steps = std::ssize(runs.front().run.losses);
  std::string text = fmt::format("The five strategies, {} steps each:\n\n", steps);
  text += fmt::format("{:8} {:>2}  {:>13} {:>12}  {:>15}  {:>13}  {:>9}  {}\n", "strategy", "W",
                      "peak per rank", "the bound", "optimizer state", "received/step", "last loss",
                      "parameters");
  for (const auto& [run, bound] : runs) {
    text +=
        fmt::format("{:8} {:>2}  {:>13} {:>12}  {:>15}  {:>13}  {:>9.4f}  {:.12}\n", run.strategy,
                    run.world_size, run.peak_bytes, bound, run.categories[MemoryKind::optimizer],
                    run.comm_bytes / steps, run.losses.back(), run.param_sha256);
  }
  text.pop_back();
  return text;
}

}  // namespace fsdp::train
