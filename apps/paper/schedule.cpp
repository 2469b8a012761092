#include "paper/schedule.h"

namespace fsdp::paper {

std::unique_ptr<Schedule> schedule_of(const MemoryOptions& options) {
  if (options.framework == Framework::unshard) {
    return std::make_unique<RecipeSchedule>(options.recipe);
  }
  return std::make_unique<TorchSchedule>(options.recipe);
}

}  // namespace fsdp::paper
