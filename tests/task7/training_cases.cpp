#include "paper/memory_formula.h"
#include "support/reshard.h"
#include "task7/cases.h"
#include "task7/oracle.h"
#include "task7/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

namespace fsdp::graded {
namespace {

int micro_batches_of(const Case& asked) {
  return asked.options.value("micro_batches", asked.world_size);
}

/// Options as single() wants them.
Json alone(const Case& asked) {
  Json options = asked.options;
  options["ranks_of_j"] = asked.world_size;
  return options;
}

std::vector<std::string> exact(const std::vector<double>& numbers) {
  std::vector<std::string> texts;
  for (const double each : numbers) texts.push_back(fmt::format("{:.17g}", each));
  return texts;
}

/// Every bit where that is promised, else closeness.
void check_values(Check& check, const State& observed, const State& expected, int world_size,
                  const std::vector<Cause>& causes = {}) {
  if (std::has_single_bit(static_cast<unsigned>(world_size))) {
    check_state(check, observed, expected, causes);
  } else {
    check_close(check, observed, expected);
  }
}

void check_losses(Check& check, const Observations& seen, int rank, const Single& expected) {
  for (const Json& each : seen.at(rank, "losses")) {
    const int step = each.at("step").get<int>(), j = each.at("j").get<int>();
    const double right = expected.losses.at({step, j});
    const double observed = each.at("loss").get<double>();
    const bool same = std::has_single_bit(static_cast<unsigned>(seen.world_size()))
                          ? observed == right
                          : std::abs(observed - right) <= 1e-3 * std::abs(right);
    check.that(same,
               fmt::format("the loss of micro-batch {} in step {} is {:.9g}", j, step, observed),
               fmt::format("{:.9g}", right));
    if (!check.ok()) return;
  }
}

void check_evaluations(const Observations& seen, int rank, const Single& expected) {
  const Json& observed = seen.at(rank, "evaluations");
  Check check("7.4", "an evaluation after a step uses the updated parameters", seen);
  const bool exact = std::has_single_bit(static_cast<unsigned>(seen.world_size()));
  for (std::size_t step = 0; step < observed.size() && check.ok(); ++step) {
    check_evaluation(check.at(rank), observed.at(step), expected.evaluations.at(step), exact);
  }
}

/// What gradients say that were not divided by the loss scale.
std::vector<Cause> causes_of_scale(const State& observed, State right, const Case& asked,
                                   const char* of) {
  const auto scale = asked.options.value("loss_scale", 1.0F);
  for (auto& [name, values] : right) {
    for (float& each : values) each *= scale;
  }
  return {{scale != 1 && observed == right,
           fmt::format("You passed only a part of the plan on: the gradients of {} are {} times "
                       "too large, because they were not divided by its loss_scale",
                       of, scale)}};
}

/// One reduction of each flat vector for every L micro-steps, whatever M is.
void check_reductions(const Observations& seen, int rank) {
  const Case& asked = seen.asked();
  const int micro_steps = micro_batches_of(asked) / seen.world_size();
  const int all_or_one = asked.options.value("no_sync", false) ? micro_steps : 1;
  const int per_reduction = asked.options.value("per_reduction", all_or_one);
  std::int64_t observed = 0, flats = 0;
  for (const Json& each : seen.at(rank, "collectives")) {
    observed += each.at("op") == "reduce_scatter" ? 1 : 0;
  }
  for (const WantedUnit& unit : plan_of(asked).units) {
    for (const WantedFlat& flat : unit.flats) flats += flat.trainable ? 1 : 0;
  }
  Check check("7.4", "begin_step passes the plan on: one reduction per L micro-steps", seen);
  check.at(rank).equal("the number of reduce-scatters in a step", observed,
                       flats * (micro_steps / per_reduction),
                       {{per_reduction > 1 && observed == flats,
                         "You made one reduction per step, although L is smaller than M"},
                        {per_reduction > 1 && observed == flats * micro_steps,
                         "You did not pass L on: there is one reduction per micro-step"}});
}

bool trains_no_shard(const Plan& plan) {
  return std::none_of(plan.units.begin(), plan.units.end(), [](const WantedUnit& unit) {
    return std::any_of(unit.flats.begin(), unit.flats.end(),
                       [](const WantedFlat& flat) { return flat.trainable; });
  });
}

void check_counts_of(const Observations& seen, int rank, std::int64_t steps) {
  const auto counts = seen.at(rank, "counts").get<std::vector<std::int64_t>>();
  Check check("7.4", "each of the two optimizers is called once per step", seen);
  check.at(rank).equal("the step count of the optimizer of the shards", counts[0], steps,
                       {{counts[0] == 2 * steps,
                         "You called one optimizer twice, once for the shards and once for the "
                         "ignored parameters"}});
  if (counts[1] < 0) return;
  check.equal("the step count of the optimizer of ignored parameters", counts[1], steps,
              {{counts[1] == 0 && counts[0] == steps && trains_no_shard(plan_of(seen.asked())),
                "You updated the ignored parameters only if a sharded one is trained, but here all "
                "of those are frozen"},
               {counts[1] == 0,
                "You never updated the ignored parameters: they still have their initial values"}});
}

/// The squares that a norm is made of.
struct NormParts {
  double shards = 0;
  double copies = 0;          ///< of what is replicated, once
  std::vector<double> dealt;  ///< what DdpGradients::add_squares counts of these on each rank
};

NormParts parts_of(const State& gradients, const Plan& plan, int world_size) {
  NormParts parts{.dealt = std::vector<double>(static_cast<std::size_t>(world_size))};
  std::map<std::string, double> squares;
  for (const auto& [name, values] : gradients) {
    double sum = 0;
    for (const float each : values) sum += double{each} * each;
    squares[name] = sum;
    parts.shards += sum;
  }
  std::size_t next = 0;
  for (const std::string& path : plan.replicated) {
    const auto found = squares.find("grad/" + path);
    if (found == squares.end()) continue;  // frozen
    parts.shards -= found->second;
    parts.copies += found->second;
    parts.dealt[next++ % parts.dealt.size()] += found->second;
  }
  return parts;
}

/// The paths of what is replicated and trained, in alphabetical order.
Names replicated_keys(const Plan& plan, const Json& options) {
  Names keys = piece_keys(plan, options);
  std::erase_if(keys, [](const std::string& key) { return key.find('#') != std::string::npos; });
  std::sort(keys.begin(), keys.end());
  return keys;
}

/// What is left of the gradients.
void check_zeroed(const Observations& seen, int rank, const std::string& key) {
  Check check("7.4", "after zero_grad no gradient is allocated", seen);
  const Json& left = seen.at(rank, "gradients " + key);
  const int count = left.at("count").get<int>();
  const std::string when = key == "zeroed" ? "after zero_grad()" : "after zero_grad(), " + key;
  check.at(rank).equal(
      "the number of SHARDED_GRAD bytes " + when, seen.bytes(rank, key, "SHARDED_GRAD"), 0,
      {{count > 0 && left.at("zero").get<bool>(),
        fmt::format("You filled the gradients of {} shards with zeros and kept their memory, but "
                    "zero_grad() frees it",
                    count)},
       {count > 0, fmt::format("You left {} shards their gradient", count)},
       {true, "You freed the shards' gradients, but something still holds a view of one"}});
  check.equal("the number of UNSHARDED_GRAD bytes " + when, seen.bytes(rank, key, "UNSHARDED_GRAD"),
              0,
              {{!plan_of(seen.asked()).replicated.empty(),
                "You did not free the replicated gradients: their engine has a zero_grad() too"}});
}

}  // namespace

void judge_gradients(const Setup& setup) {
  const Observations& seen = run("gradients", setup);
  const Case& asked = seen.asked();
  Json options = alone(asked);
  options["clip"] = asked.options.value("clip", 0.5);
  const int world_size = seen.world_size();
  const Single& right = single(options, asked.seed, micro_batches_of(asked), 1);
  const double norm = right.norms.front();
  for (int rank = 0; rank < world_size; ++rank) check_reductions(seen, rank);
  for (const std::string key : {"gradients", "clipped", "updated"}) {
    const bool clipped = key != "gradients";
    const State& all = clipped ? right.clipped : right.first_gradients;
    Check check("7.4",
                !clipped ? "the gradient is the sum over all micro-batches of all ranks, times "
                           "1/J, for shards and for replicated parameters"
                : key == "clipped"
                    ? "clipping scales every gradient, sharded or replicated, by the norm of the "
                      "whole gradient"
                    : "the gradients stay as they are until zero_grad: step only reads them",
                seen);
    const Cause changed_in_step = {key == "updated",
                                   "You changed the gradients in step(), which only reads them"};
    Assembled whole;
    for (int rank = 0; rank < world_size; ++rank) {
      Check now("7.4", "pieces() holds the gradients that exist when it is called", seen);
      Names without = seen.lines(rank, key + " without");
      std::sort(without.begin(), without.end());
      if (!seen.at(rank, key).empty()) {
        now.at(rank).equal(
            "the pieces without a gradient, after finish_gradients()", without, {},
            {{!without.empty() && without == replicated_keys(plan_of(asked), asked.options),
              "You did not call finish_gradients of the replicated engine"},
             {std::ssize(without) == std::ssize(piece_keys(plan_of(asked), asked.options)),
              "You returned the pieces of an earlier call, which was before there were "
              "gradients"}});
      }
      if (!now.ok()) return;
      add_slices(whole, seen.at(rank, key));
      Assembled own;
      add_slices(own, seen.at(rank, key + " replicated"));
      const bool freed = key == "updated" && seen.at(rank, key).empty();
      check.at(rank).that(!freed, "after step() no shard has a gradient", "all of them",
                          {{true, "You freed them in step(), but only zero_grad() should"}});
      if (!check.ok()) break;
      const State copies = part_of(all, asked.options, true);
      check.at(rank).that(own.values.empty() <= copies.empty(),
                          "pieces() has none of the replicated gradients", "all of them");
      std::vector<Cause> causes = causes_of_scale(own.values, copies, asked, "ignored parameters");
      causes.push_back(changed_in_step);
      check_values(check, own.values, copies, world_size, causes);
    }
    if (!check.ok()) break;
    check.at(0);
    const State sharded = part_of(all, asked.options, false);
    check_cover(check, whole, names_in(sharded));
    if (check.ok()) {
      std::vector<Cause> causes = causes_of_scale(whole.values, sharded, asked, "shards");
      causes.push_back(changed_in_step);
      check_values(check, whole.values, sharded, world_size, causes);
    }
    if (clipped) continue;
    for (int rank = 0; rank < world_size; ++rank) {
      Check one("7.4", "over all ranks every element of the gradient counts once in the norm",
                seen);
      const double observed = seen.at(rank, "norm").get<double>();
      const bool same = std::has_single_bit(static_cast<unsigned>(world_size))
                            ? observed == norm
                            : std::abs(observed - norm) <= 1e-4 * norm;
      const NormParts parts = parts_of(all, plan_of(asked), world_size);
      const auto is = [&](double replicated) {
        return std::abs(observed - std::sqrt(parts.shards + replicated)) <= 1e-6 * norm;
      };
      const bool is_shared = parts.copies > 0 && world_size > 1;
      one.at(rank).that(
          same, fmt::format("the norm is {:.17g}", observed), fmt::format("{:.17g}", norm),
          {{is_shared && is(world_size * parts.copies),
            "You count replicated gradients on every rank, which is W times"},
           {parts.copies > 0 && is(0), "You do not count replicated gradients at all"},
           {is_shared && std::any_of(parts.dealt.begin(), parts.dealt.end(), is),
            "You count replicated gradients on one rank only, but DdpGradients::add_squares "
            "divides them among the ranks"}});
      Check clip("7.4", "clip_grad_norm returns the norm of the whole gradient", seen);
      clip.at(rank).equal("the norm that it returned",
                          fmt::format("{:.17g}", seen.at(rank, "clipped by").get<double>()),
                          fmt::format("{:.17g}", observed));
    }
  }
  for (int rank = 0; rank < world_size; ++rank) {
    check_zeroed(seen, rank, "zeroed");
    Check left("7.4", "after zero_grad there are no gradients", seen);
    left.at(rank).equal("the number of shards that have a gradient",
                        std::ssize(seen.at(rank, "left")), 0);
    left.equal("the number of replicated pieces that have a gradient",
               std::ssize(seen.at(rank, "left replicated")), 0);
  }
}

void judge_training(const Setup& setup) {
  const Observations& seen = run("training", setup);
  const Case& asked = seen.asked();
  const int steps = asked.options.value("steps", 2);
  const Single& right = single(alone(asked), asked.seed, micro_batches_of(asked), steps);
  const State trained = part_of(right.state, asked.options, false);
  const State built = eager(asked.options, asked.seed).state;
  Check check(
      "7.4",
      "training on W ranks gives the losses, parameters and optimizer state of a single process",
      seen);
  Assembled whole;
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    check_counts_of(seen, rank, steps);
    add_slices(whole, seen.at(rank, "slices"));
    Assembled own;
    add_slices(own, seen.at(rank, "replicated"));
    State parameters;
    for (const auto& [name, values] : part_of(right.state, asked.options, true)) {
      if (name.starts_with("param/")) parameters[name] = values;
    }
    check.at(rank);
    check_values(
        check, own.values, parameters, seen.world_size(),
        {{own.values == part_of(built, asked.options, true),
          "You never updated the ignored parameters: they still have their initial values"}});
    check_losses(check, seen, rank, right);
    check_evaluations(seen, rank, right);
    Check equal("7.4", "replicated parameters are the same on all ranks, to the last bit", seen);
    Assembled others;
    add_slices(others, seen.at(0, "replicated"));
    check_state(equal.at(rank), own.values, others.values);
    if (std::has_single_bit(static_cast<unsigned>(seen.world_size()))) {
      check.equal("the gradient norms", exact(seen.at(rank, "norms").get<std::vector<double>>()),
                  exact(right.norms));
    }
    Check pieces("7.4", "pieces() holds the optimizer's pieces and the replicated ones", seen);
    for (int step = 0; step < steps; ++step) {
      const std::string name = std::to_string(step);
      check_zeroed(seen, rank, "after step " + name);
      if (!seen.has(rank, "pieces " + name)) continue;
      Names keys, wanted = piece_keys(plan_of(asked), asked.options);
      for (const Json& piece : seen.at(rank, "pieces " + name)) {
        keys.push_back(piece.at("key").get<std::string>());
      }
      std::sort(keys.begin(), keys.end());
      std::sort(wanted.begin(), wanted.end());
      pieces.at(rank).equal("the keys of the pieces", keys, wanted);
    }
  }
  check.at(0);
  check_cover(check, whole, names_in(trained));
  if (check.ok()) check_values(check, whole.values, trained, seen.world_size());
}

void judge_memory(const Setup& setup) {
  Setup measured = setup;
  measured.options["measure"] = true;
  measured.options["meta"] = true;
  const Observations& seen = run("training", measured);
  const Json& options = seen.asked().options;
  paper::MemoryOptions given;
  given.recipe.strategy = optim::Strategy::fsdp;
  given.recipe.ranks = seen.world_size();
  given.batch = options.value("batch", std::int64_t{2});
  given.recipe.micro_steps = micro_batches_of(seen.asked()) / seen.world_size();
  given.recipe.micro_steps_per_reduction = options.value(
      "per_reduction", options.value("no_sync", false) ? given.recipe.micro_steps : 1);
  given.recipe.clip = options.value("clip", 0.0);
  given.recipe.sharding.reshard_after_forward = testing::reshard_of(options.value("group", 0));
  given.recipe.sharding.prefetch_depth = options.value("depth", 1);
  given.recipe.sharding.in_flight_limit = options.value("limit", 0);
  given.recipe.sharding.ignored = options.value("ignored", Names{});
  given.recipe.optimizer.decay_norms = decays(options, "model.norm.weight");
  const nn::TransformerConfig config = config_of(options);
  const paper::MemoryFormula formula(config, given);
  given.recipe.strategy = optim::Strategy::ddp;
  const paper::MemoryFormula replicated(config, given);
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("7.4",
                "the peak of a step matches the formula: shards, the units that are unsharded "
                "for a moment, and activations",
                seen);
    for (int step = 0; step < options.value("steps", 2); ++step) {
      const Json& noted = seen.at(rank, "step " + std::to_string(step));
      const auto peak = noted.at("peak").at("total").get<std::int64_t>();
      check.at(rank).at_most(fmt::format("the peak of step {}, in bytes,", step), peak,
                             formula.step(step).peak().total(),
                             {{peak >= replicated.step(step).peak().total(),
                               "You hold sharded parameters whole: this is as much as DDP needs"}});
      check.at_most("the largest block taken from the heap", noted.at("heap").get<std::int64_t>(),
                    16384, {{true, "You made a copy outside the memory tracker"}});
    }
  }
}

}  // namespace fsdp::graded
