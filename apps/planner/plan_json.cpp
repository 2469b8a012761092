// A plan for programs. Bytes are whole numbers, times are picoseconds.
#include "planner/outcome_json.h"
#include "planner/plan.h"

#include <string>

namespace fsdp::planner {

namespace {

using Json = nlohmann::ordered_json;

Json kinds_of(const Breakdown& bytes) {
  Json kinds = Json::object();
  for (std::size_t i = 0; i < bytes.nbytes.size(); ++i) {
    kinds[std::string(lower_name_of(static_cast<MemoryKind>(i)))] = bytes.nbytes[i];
  }
  return kinds;
}

Json to_json(const Outcome& outcome) {
  Json configuration = Json::object();
  for (const Choice choice : kChoices) {
    const std::string value = value_of(choice, outcome.options);
    if (!value.empty()) configuration[std::string(name_of(choice))] = value;
  }
  configuration["micro-steps"] = std::to_string(outcome.options.micro_steps);
  Json entry{{"configuration", configuration},
             {"step_ps", outcome.step()},
             {"device_bytes", outcome.memory()},
             {"host_bytes", outcome.host.total()}};
  add_time(entry, outcome.time);
  entry["device_kinds"] = kinds_of(outcome.device);
  return entry;
}

}  // namespace

std::string plan_json(const Plan& plan) {
  Json front = Json::array();
  for (const std::size_t index : plan.front) front.push_back(to_json(plan.outcomes[index]));
  Json alternatives = Json::array();
  for (const Alternative& each : plan.alternatives) {
    Json entry{{"choice", std::string(name_of(each.choice))}, {"value", each.value}};
    entry["fastest"] =
        each.index == Alternative::kNone ? Json() : to_json(plan.outcomes[each.index]);
    alternatives.push_back(std::move(entry));
  }
  const Json document{
      {"model", plan.request.model_name},
      {"memory_bytes", plan.request.memory},
      {"global_batch", plan.request.global_batch},
      {"configurations", plan.outcomes.size()},
      {"fitting", plan.fitting},
      {"front", front},
      {"next_best",
       plan.next_best == Alternative::kNone ? Json() : to_json(plan.outcomes[plan.next_best])},
      {"alternatives", alternatives}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fsdp::planner
