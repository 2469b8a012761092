#include "train/strategy.h"

#include "base/check.h"

#include <utility>

namespace fsdp::train {

std::unique_ptr<Strategy> make_strategy(const TrainConfig& config,
                                        std::shared_ptr<ProcessGroup> group) {
  const std::string& name = config.parallel.strategy;
  FSDP_CHECK((group == nullptr) == (name == "single"), "strategy {} {} a process group", name,
             group == nullptr ? "needs" : "has no use for");
  if (name == "fsdp") return make_sharded_strategy(config, std::move(group));
  return make_replicated_strategy(config, std::move(group));
}

}  // namespace fsdp::train
