#include "plan/outcome_json.h"

#include "plan/choices.h"

#include <cstddef>
#include <string>

namespace fsdp::plan {

nlohmann::ordered_json configuration_of(const paper::MemoryOptions& options) {
  nlohmann::ordered_json configuration;
  for (const Choice choice : kChoices) {
    const std::string value = value_of(choice, options);
    if (!value.empty()) configuration[std::string(name_of(choice))] = value;
  }
  configuration["micro-steps"] = std::to_string(options.recipe.micro_steps);
  return configuration;
}

void add_time(nlohmann::ordered_json& object, const paper::StepTime& time) {
  for (std::size_t i = 0; i < paper::kTimeParts; ++i) {
    const auto part = static_cast<paper::TimePart>(i);
    object["time_ps"][std::string(paper::name_of(part))] = time.split[part];
  }
  object["latency_ps"] = time.channels.latency;
  object["transfer_ps"] = time.channels.transfer;
}

}  // namespace fsdp::plan
