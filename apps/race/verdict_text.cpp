#include "race/verdict_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace fsdp::race {
namespace {

double mebibytes(std::int64_t nbytes) { return static_cast<double>(nbytes) / (1 << 20); }

}  // namespace

std::string verdict_to_json(const Track& track, const Estimate& plan, const Estimate& fsdp,
                            const Bound& bound, const std::string& refused,
                            const std::optional<Planned>& planner) {
  nlohmann::ordered_json json{{"track", track.number},
                              {"name", track.name},
                              {"refused", refused},
                              {"memory_bytes", track.memory_bytes},
                              {"fsdp_ps", fsdp.step_ps},
                              {"fsdp_bytes", fsdp.peak_bytes},
                              {"bound_ps", bound.ps()},
                              {"bound_computation_ps", bound.computation},
                              {"bound_channel_ps", bound.channel}};
  if (planner) {
    json["planner_ps"] = planner->step_ps;
    json["planner"] = planner->what;
  }
  if (plan.peak_bytes > 0) json["peak_bytes"] = plan.peak_bytes;
  if (refused.empty()) json["step_ps"] = plan.step_ps;
  return json.dump();
}

std::string refused_for_memory(std::int64_t peak_bytes, const Track& track) {
  if (peak_bytes <= track.memory_bytes) return {};
  return fmt::format(
      "the plan holds {} bytes at its peak, and a rank has {} ({:.1f} and {:.1f} MiB): keep "
      "fewer units, or only parts of them, gather fewer ahead, or checkpoint blocks",
      peak_bytes, track.memory_bytes, mebibytes(peak_bytes), mebibytes(track.memory_bytes));
}

std::string tracks_to_json() {
  nlohmann::ordered_json all;
  for (const Track& each : tracks()) {
    all.push_back({{"track", each.number}, {"name", each.name}, {"about", each.about}});
  }
  return all.dump();
}

}  // namespace fsdp::race
