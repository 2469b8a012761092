#include "graded/expect.h"
#include "paper/memory_formula.h"
#include "task7/oracle.h"
#include "task8/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

namespace fsdp::graded {
namespace {

int micro_batches_of(const Case& asked) {
  return asked.options.value("micro_batches", asked.world_size);
}
/// 1 without a mesh.
int replicas_of(const Case& asked) { return std::max(1, asked.options.value("replicas", 0)); }
int shards_of(const Case& asked) { return asked.world_size / replicas_of(asked); }

bool is_power_of_two(int number) { return std::has_single_bit(static_cast<unsigned>(number)); }

/// Whether the replicas and micro-steps of a case divide the canonical tree.
bool is_exact(const Case& asked) {
  const bool one_micro_step = micro_batches_of(asked) == asked.world_size;
  return is_power_of_two(shards_of(asked)) && (one_micro_step || is_power_of_two(asked.world_size));
}

const Single& single_of(const Case& asked) {
  Json options = asked.options;
  for (const char* name : {"replicas", "given_up", "checkpoint"}) options.erase(name);
  return single(options, asked.seed, micro_batches_of(asked), asked.options.value("steps", 2));
}

/// The transfers of gradients in a step, in the order in which the handout has them.
std::vector<std::string> transfers_of(const Observations& seen, int rank) {
  const Case& asked = seen.asked();
  const int micro_steps = micro_batches_of(asked) / asked.world_size;
  const int per_reduction = asked.options.value("per_reduction", 1);
  std::vector<std::string> lines;
  Json reducing, under_way;  // units
  const auto add = [&](const char* what, const Json& unit) {
    for (int i = 0; i < unit.at("flats").get<int>(); ++i) {
      lines.push_back(fmt::format("{} {}/gradient", what, unit.at("name").get<std::string>()));
    }
  };
  const auto finish = [&] {
    if (reducing.is_null()) return;
    add("wait reduce_scatter", reducing);
    if (!under_way.is_null()) add("wait all_reduce", under_way);
    add("issue all_reduce", reducing);
    under_way = reducing;
    reducing = nullptr;
  };
  const Json& units = seen.at(rank, "units");
  for (int m = 0; m < micro_steps; ++m) {
    if ((m + 1) % per_reduction != 0) continue;
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
      finish();
      if (unit->at("flats").get<int>() == 0) continue;  // frozen
      add("issue reduce_scatter", *unit);
      reducing = *unit;
    }
    finish();
  }
  if (!under_way.is_null()) add("wait all_reduce", under_way);
  return lines;
}

std::vector<std::string> gradients_in(std::vector<std::string> lines) {
  std::erase_if(lines, [](const std::string& line) { return !line.ends_with("/gradient"); });
  return lines;
}

void check_values(Check& check, const State& observed, const State& expected, bool exact,
                  const std::vector<Cause>& causes = {}) {
  if (exact) {
    check_state(check, observed, expected, causes);
  } else {
    check_close(check, observed, expected);
  }
}

bool check_losses(const Observations& seen, const std::string& step_id, int rank,
                  const Single& right) {
  Check check(step_id, "training gives the losses of a single process", seen);
  for (const Json& each : seen.at(rank, "losses")) {
    const int step = each.at("step").get<int>(), j = each.at("j").get<int>();
    const double expected = right.losses.at({step, j});
    const double observed = each.at("loss").get<double>();
    const bool same = is_exact(seen.asked())
                          ? observed == expected
                          : std::abs(observed - expected) <= 1e-3 * std::abs(expected);
    check.at(rank).that(
        same, fmt::format("the loss of micro-batch {} in step {} is {:.9g}", j, step, observed),
        fmt::format("{:.9g}", expected));
    if (!check.ok()) return false;
  }
  return true;
}

/// Losses, parameters, optimizer state and norms, on every rank and in every replica.
void check_trained(const Observations& seen, const std::string& step_id) {
  const Case& asked = seen.asked();
  const int world = seen.world_size(), replicas = replicas_of(asked), shards = shards_of(asked);
  const Single& right = single_of(asked);
  for (int rank = 0; rank < world; ++rank) {
    if (!check_losses(seen, step_id, rank, right)) break;
  }
  const State trained = part_of(right.state, asked.options, false);
  for (int replica = 0; replica < replicas; ++replica) {
    Assembled whole;
    for (int shard = 0; shard < shards; ++shard) {
      add_slices(whole, seen.at(replica * shards + shard, "slices"));
    }
    State own;
    for (const auto& [name, values] : whole.values) {
      if (trained.contains(name)) own[name] = values;
    }
    Check check(step_id,
                "training gives the parameters and the optimizer state of a single process, in "
                "every replica",
                seen);
    check_values(check.at(replica * shards), own, trained, is_exact(asked));
    if (!check.ok()) return;
  }
  if (!is_exact(asked)) return;
  for (int rank = 0; rank < world; ++rank) {
    std::vector<std::string> norms, expected;
    for (const Json& each : seen.at(rank, "norms")) {
      norms.push_back(fmt::format("{:.17g}", each.get<double>()));
    }
    for (const double each : right.norms) expected.push_back(fmt::format("{:.17g}", each));
    Check check(step_id, "the norm is that of the whole gradient: each replica counts it once",
                seen);
    check.at(rank).equal("the gradient norms", norms, expected);
    if (!check.ok()) return;
  }
}

void check_memory(const Setup& setup, const std::string& step_id, const std::string& invariant) {
  Setup measured = setup;
  measured.options["measure"] = true;
  const Observations& seen = run("sharded_training", measured);
  const Case& asked = seen.asked();
  const auto checkpoints = asked.options.value("checkpoint", std::string());
  paper::MemoryOptions given;
  given.recipe.strategy = optim::Strategy::fsdp;
  given.recipe.ranks = seen.world_size();
  given.recipe.replicas = replicas_of(asked);
  given.batch = asked.options.value("batch", std::int64_t{2});
  given.recipe.micro_steps = micro_batches_of(asked) / seen.world_size();
  given.recipe.micro_steps_per_reduction = asked.options.value("per_reduction", 1);
  given.recipe.clip = asked.options.value("clip", 0.0);
  given.recipe.sharding.prefetch_depth = asked.options.value("depth", 1);
  given.recipe.checkpointing = checkpoints == "inside"   ? optim::Checkpointing::inside
                               : checkpoints == "around" ? optim::Checkpointing::around
                                                         : optim::Checkpointing::none;
  const paper::MemoryFormula formula(config_of(asked.options), given);
  given.recipe.checkpointing = optim::Checkpointing::none;
  const paper::MemoryFormula without(config_of(asked.options), given);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check(step_id, invariant, seen);
    for (int step = 0; step < asked.options.value("steps", 2); ++step) {
      const Json& noted = seen.at(rank, fmt::format("step {}", step));
      const auto peak = noted.at("peak").at("total").get<std::int64_t>();
      check.at(rank).at_most(
          fmt::format("the peak of step {}, in bytes,", step), peak,
          formula.step(step).peak().total(),
          {{!checkpoints.empty() && peak >= without.step(step).peak().total(),
            "You still hold what the blocks computed: this is as much as without a checkpoint"}});
      check.at_most("the largest block taken from the heap", noted.at("heap").get<std::int64_t>(),
                    16384, {{true, "You made a copy outside the memory tracker"}});
    }
  }
}

}  // namespace

void judge_mesh_training(const Setup& setup) {
  const Observations& seen = run("sharded_training", setup);
  const Case& asked = seen.asked();
  const int world = seen.world_size();
  const bool ignores = !asked.options.value("ignored", Names{}).empty();
  for (int rank = 0; rank < world; ++rank) {
    for (int step = 0; step < asked.options.value("steps", 2) && !ignores; ++step) {
      const auto expected = transfers_of(seen, rank);
      auto lines = gradients_in(seen.lines(rank, fmt::format("events {}", step)));
      if (asked.options.value("given_up", false)) {
        // The step before was abandoned: what was under way of it ends in begin_step.
        const auto begin = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
          return line.starts_with("issue");
        });
        lines.erase(lines.begin(), begin);
      }
      Check order("8.3",
                  "a unit's shards are summed over the replicas while the next unit computes, and "
                  "finished before the next unit's are",
                  seen);
      order.at(rank).equal(fmt::format("the transfers of gradients in step {}", step), lines,
                           expected);
      if (!order.ok()) return;
    }
  }
  check_trained(seen, "8.3");
}

void judge_mesh_memory(const Setup& setup) {
  check_memory(setup, "8.3",
               "the peak of a step matches the formula: beside what FSDP holds, the shards of one "
               "unit are under way between the replicas");
}

void judge_checkpoint_training(const Setup& setup) {
  const Observations& seen = run("sharded_training", setup);
  const bool is_around = seen.asked().options.value("checkpoint", "") == "around";
  check_trained(seen, is_around ? "8.6" : "8.5");
}

void judge_checkpoint_memory(const Setup& setup) {
  const bool is_around = setup.options.value("checkpoint", "") == "around";
  check_memory(setup, is_around ? "8.6" : "8.5",
               "the peak of a step matches the formula: the input of each block, and the "
               "activations of the one that runs again");
}

}  // namespace fsdp::graded
