#include "race/plans.h"

#include "base/philox.h"

#include <utility>

namespace fsdp::testing {

race::Track odd_track(int ranks, bool is_tied) {
  race::Track track;
  track.number = 1;
  track.name = "odd";
  track.model = nn::TransformerConfig::nano();
  track.model.num_hidden_layers = 3;
  track.model.tie_word_embeddings = is_tied;
  track.ranks = ranks;
  track.batch = 2;
  track.machine = {.ps_per_flop = 0.7,
                   .ps_per_flop_16 = 0.3,
                   .ps_per_byte = 1.3,
                   .alpha_ps = 1777,
                   .link_ps_per_byte = 12.9,
                   .ranks_per_box = 2,
                   .far_alpha_ps = 4111,
                   .far_link_ps_per_byte = 37.3};
  track.memory_bytes = std::int64_t{1} << 40;
  return track;
}

race::Plan random_plan(const race::PaperTrack& paper, std::uint64_t seed) {
  const std::vector<race::Module>& modules = paper.modules();
  const int ranks = paper.track().ranks;
  std::uint64_t next = 0;
  const auto below = [&](std::size_t n) { return random_word(seed, next++) % n; };
  race::Plan plan;
  for (int s = 2; s < ranks; ++s) {
    if (ranks % s == 0 && (plan.neighbors == 0 || below(2) == 0)) plan.neighbors = s;
  }
  for (const race::Module& module : modules) {
    if (below(5) == 0 && module.name != modules[1].name) continue;
    race::Unit unit{.module = module.name};
    unit.keep = below(2) == 0;
    unit.keep_part = !unit.keep && plan.neighbors > 0 && below(2) == 0;
    unit.checkpoint = module.is_block && below(3) == 0 && FSDP_HAS_TASK8 == 1;
    plan.units.push_back(std::move(unit));
  }
  const auto some = [&] {
    std::vector<std::string> names;
    for (std::size_t count = below(4); count > 0; --count) {
      names.push_back(plan.units[below(plan.units.size())].module);
    }
    return names;
  };
  for (race::Unit& unit : plan.units) {
    unit.before_forward = some();
    unit.before_backward = some();
  }
  if (plan.units.size() < modules.size()) {
    plan.units.push_back({.module = "root"});
    plan.units.back().before_forward = {plan.units.front().module};
  }
  return plan;
}

race::Plan plain_plan(const std::vector<race::Module>& modules) {
  race::Problem problem;
  problem.modules = modules;
  return race::plan(problem);
}

}  // namespace fsdp::testing
