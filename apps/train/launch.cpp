#include "train/launch.h"

#include "base/check.h"
#include "comm/processes/launch.h"

#include <fmt/format.h>

namespace fsdp::train {

std::vector<std::string> words_of_launch() {
  const auto launch = processes::launched();
  if (!launch) return {};
  return {"--parallel.ranks", std::to_string(launch->size)};
}

void check_launch(const config::TrainConfig& config) {
  const auto launch = processes::launched();
  const std::int64_t ranks = config.recipe.ranks;
  if (!launch || ranks == launch->size) return;
  throw InputError(fmt::format(
      "command line: parallel.ranks: is {}, but {} has started {} process{}; leave it out, or "
      "start the program with {} {}",
      ranks, launch->by(), launch->size, launch->size == 1 ? "" : "es", launch->command(), ranks));
}

}  // namespace fsdp::train
