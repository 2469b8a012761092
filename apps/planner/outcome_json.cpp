#include "planner/outcome_json.h"

#include <cstddef>
#include <string>

namespace fsdp::planner {

void add_time(nlohmann::ordered_json& object, const estimate::StepTime& time) {
  for (std::size_t i = 0; i < estimate::kTimeParts; ++i) {
    const auto part = static_cast<estimate::TimePart>(i);
    object["time_ps"][std::string(estimate::name_of(part))] = time.split[part];
  }
  object["latency_ps"] = time.channels.latency;
  object["transfer_ps"] = time.channels.transfer;
}

}  // namespace fsdp::planner
