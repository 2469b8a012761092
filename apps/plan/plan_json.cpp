// A plan for programs. Bytes are whole numbers, times are picoseconds.
#include "plan/outcome_json.h"
#include "plan/plan.h"
#include "program/program.h"

#include <optional>
#include <string>

namespace fsdp::plan {

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
  Json entry{{"configuration", configuration_of(outcome.options)},
             {"step_ps", outcome.step()},
             {"device_bytes", outcome.memory()},
             {"beside_bytes", outcome.beside},
             {"host_bytes", outcome.host.total()}};
  add_time(entry, outcome.time);
  entry["device_kinds"] = kinds_of(outcome.device);
  return entry;
}

Json to_json(const CostModel& machine) {
  const auto rate = [](double ps) { return ps == 0 ? Json() : Json(kPicosecondsPerSecond / ps); };
  Json json{{"flops_per_second", rate(machine.ps_per_flop)},
            {"flops_16_per_second", rate(machine.ps_per_flop_16)},
            {"memory_bytes_per_second", rate(machine.ps_per_byte)},
            {"link_bytes_per_second", rate(machine.link_ps_per_byte)},
            {"latency_ps", machine.alpha_ps},
            {"ranks_per_box", machine.ranks_per_box},
            {"bus_bytes_per_second", rate(machine.bus_ps_per_byte)}};
  if (machine.ranks_per_box == 0) return json;
  json["far_link_bytes_per_second"] = rate(machine.far_link_ps_per_byte);
  json["far_latency_ps"] = machine.far_alpha_ps;
  return json;
}

}  // namespace

std::string plan_json(const Plan& plan, Evaluator& evaluator) {
  Json front = Json::array();
  for (const std::size_t index : plan.front) front.push_back(to_json(plan.outcomes[index]));
  Json alternatives = Json::array();
  for (const Alternative& each : plan.alternatives) {
    Json entry{{"choice", std::string(name_of(each.choice))}, {"value", each.value}};
    entry["fastest"] =
        each.index == Alternative::kNone ? Json() : to_json(plan.outcomes[each.index]);
    alternatives.push_back(std::move(entry));
  }
  const std::optional<Outcome> larger =
      plan.is_feasible() ? larger_micro_batch(plan, evaluator) : std::nullopt;
  const Json document{
      {"version", program::version()},
      {"framework", paper::name_of(plan.request.base.framework)},
      {"model", plan.request.model_name},
      {"parameters", evaluator.model().parameter_count()},
      {"sequence_length", plan.request.base.length_of(evaluator.model())},
      {"machine", to_json(evaluator.machine())},
      {"memory_bytes", plan.request.memory},
      {"global_batch", plan.request.global_batch},
      {"configurations", plan.outcomes.size()},
      {"fitting", plan.fitting},
      {"front", front},
      {"next_best",
       plan.next_best == Alternative::kNone ? Json() : to_json(plan.outcomes[plan.next_best])},
      {"larger_micro_batch", larger ? to_json(*larger) : Json()},
      {"smallest", plan.is_feasible() ? Json() : to_json(plan.smallest())},
      {"alternatives", alternatives}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fsdp::plan
