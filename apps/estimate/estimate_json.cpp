// An estimate as JSON; docs/estimator.md describes the schema.
#include "estimate/estimate.h"
#include "estimate/zero_states.h"
#include "program/program.h"

#include <nlohmann/json.hpp>

namespace fsdp::estimate {
namespace {

using Json = nlohmann::ordered_json;

/// All ten kinds, and their sum.
Json bytes_json(const Breakdown& bytes) {
  Json json;
  for (int i = 0; i < kMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    json[std::string(lower_name_of(kind))] = bytes[kind];
  }
  json["total"] = bytes.total();
  return json;
}

Json module_json(const ModuleMemory& module) {
  Json json;
  json["name"] = module.name;
  json["is_unit"] = module.is_unit;
  json["states"] = Json::object();
  for (std::size_t i = 0; i < kColumns; ++i) {
    if (!module.is_seen[i]) continue;
    const std::string column(name_of_column(i));
    if (module.is_unit) {
      json["states"][column] = bytes_json(module.columns[i]);
    } else {
      json["states"][column] = {{"total", module.columns[i].total()}};
    }
  }
  return json;
}

Json iteration_json(const IterationMemory& iteration) {
  Json json;
  json["before"] = bytes_json(iteration.before);
  json["peak"] = bytes_json(iteration.peak);
  json["after"] = bytes_json(iteration.after);
  json["highest_of_each_kind"] = bytes_json(iteration.highest);
  json["host_peak"] = bytes_json(iteration.host_peak);
  json["host_after"] = bytes_json(iteration.host_after);
  json["learning_rate"] = iteration.learning_rate ? Json(*iteration.learning_rate) : Json();
  json["phases"] = Json::array();
  for (const PhaseMemory& phase : iteration.phases) {
    json["phases"].push_back({{"name", phase.name},
                              {"micro_step", phase.micro_step},
                              {"module", phase.module},
                              {"is_backward", phase.is_backward},
                              {"peak", bytes_json(phase.peak)}});
  }
  json["modules"] = Json::array();
  for (const ModuleMemory& each : iteration.modules) json["modules"].push_back(module_json(each));
  return json;
}

const char* mode_of(const EstimatorConfig& config) {
  if (config.framework != paper::Framework::unshard) return "paper";
  return config.is_real ? "real" : "fake";
}

Json config_json(const EstimatorConfig& config) {
  Json json;
  json["source"] = config.train.source;
  json["command"] = config.command;
  json["model"] = config.train.model_name();
  json["mode"] = mode_of(config);
  json["rank"] = config.rank;
  json["granularity"] = config.granularity;
  json["memory_limit"] = config.limit;
  json["micro_batches"] = config.train.micro_batches() / config.train.recipe.ranks;
  json["sequence_length"] = config.train.sequence_length();
  json["warnings"] = config.warnings;
  json["settings"] = config.train.settings;
  json["origins"] = config.train.origins;
  return json;
}

Json answer_json(const Answer& answer, const EstimatorConfig& config) {
  Json json = {{"training", training_of(config)}, {"active", answer.active},
               {"reserved", answer.reserved},     {"outside", answer.outside},
               {"memory", answer.memory},         {"is_given", answer.is_given},
               {"margin", answer.margin},         {"fits", answer.fits()}};
  if (answer.remedy) {
    json["remedy"] = {{"options", answer.remedy->options},
                      {"peak", answer.remedy->peak},
                      {"reserved", answer.remedy->reserved}};
  }
  return json;
}

Json allocator_json(const EstimateRun& run) {
  const AllocatorCounts& counts = run.allocator;
  return {{"peak_active", counts.peak_active},
          {"peak_reserved", counts.peak_reserved},
          {"num_retries", counts.retries},
          {"scratch", counts.scratch},
          {"fragmentation", counts.fragmentation()},
          {"tracker_max", run.tracker_max()},
          {"tracker_accuracy", run.tracker_accuracy()}};
}

}  // namespace

std::string to_json(const Estimate& estimate) {
  const EstimateRun& run = estimate.run;
  Json json;
  json["generator"] = "made by unshard";
  json["schema"] = 1;
  json["version"] = program::version();
  json["framework"] = paper::name_of(estimate.config.framework);
  json["framework_is"] = paper::meaning_of(estimate.config.framework);
  json["answer"] = answer_json(estimate.answer, estimate.config);
  json["config"] = config_json(estimate.config);
  json["parameters"] = run.parameters;
  json["order"] = Json::array();
  for (const Stage& stage : run.stages) {
    json["order"].push_back(
        {{"name", stage.name}, {"held", stage.held}, {"highest", stage.highest}});
  }
  json["iterations"] = Json::array();
  for (const IterationMemory& each : run.iterations) {
    json["iterations"].push_back(iteration_json(each));
  }
  json["allocator"] = allocator_json(run);
  const PhaseMemory& phase =
      run.iterations.at(static_cast<std::size_t>(run.peak_iteration())).highest_phase();
  json["peak"] = {{"iteration", run.peak_iteration()},
                  {"phase", phase.name},
                  {"micro_step", phase.micro_step},
                  {"module", phase.module},
                  {"is_backward", phase.is_backward},
                  {"last_allocation",
                   {{"owner", estimate.last.unit},
                    {"kind", lower_name_of(estimate.last.kind)},
                    {"nbytes", estimate.last.nbytes}}},
                  {"replays", estimate.replays},
                  {"events", run.record.ranks[0].memory.size()}};
  json["peak"]["held_by"] = Json::array();
  for (const Holding& each : estimate.at_peak) {
    json["peak"]["held_by"].push_back(
        {{"unit", each.unit}, {"kind", lower_name_of(each.kind)}, {"nbytes", each.nbytes}});
  }
  json["savings"] = Json::array();
  for (const Saving& each : estimate.savings) {
    json["savings"].push_back({{"change", each.change},
                               {"meaning", each.meaning},
                               {"peak", each.peak},
                               {"saved", each.saved}});
  }
  json["formula"] = {{"is_comparable", estimate.opinion.is_comparable},
                     {"compared", estimate.opinion.compared},
                     {"difference", estimate.opinion.difference}};
  json["formula"]["peaks"] = Json::array();
  for (const Breakdown& each : estimate.opinion.peaks) {
    json["formula"]["peaks"].push_back(bytes_json(each));
  }
  json["formula"]["host_peaks"] = Json::array();
  for (const Breakdown& each : estimate.opinion.host_peaks) {
    json["formula"]["host_peaks"].push_back(bytes_json(each));
  }
  for (const StatesLine& each : states_lines(estimate.config, run)) {
    json["states"].push_back(
        {{"by", each.who}, {"device", each.device}, {"host", each.host}, {"what", each.what}});
  }
  json["out_of_memory"] = run.out_of_memory;
  json["resident_bytes"] = estimate.resident_bytes;
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fsdp::estimate
