#include "task5/cases.h"
#include "task5/oracle.h"

#include "graded/run.h"
#include "optim/gradient_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

namespace fsdp::graded {
namespace {

double squares_of(const std::vector<Floats>& all) {
  ExactSquareSum sum;
  for (const Floats& values : all) {
    if (!values.empty()) sum.add(Tensor::from(values, {std::ssize(values)}));
  }
  return sum.value();
}

/// A number with all its digits, so that equal texts are equal bits.
std::string digits(double value) { return fmt::format("{:.17g}", value); }

bool is_close(const Floats& all, const Floats& right) {
  return std::equal(all.begin(), all.end(), right.begin(), right.end(),
                    [](float a, float b) { return std::abs(a - b) <= 1e-5F * std::abs(b); });
}

/// The same with the padding that a case has poisoned.
std::vector<Floats> with_padding(const Case& asked, int rank) {
  std::vector<Floats> all = gradients_of(asked, 1, rank);
  std::size_t next = 0;
  for (const FlatSpec& spec : specs_of(asked)) {
    if (!spec.trainable) continue;
    all[next++].resize(static_cast<std::size_t>(shard_numel(spec, asked.world_size)),
                       static_cast<float>(poison_of(asked)));
  }
  return all;
}

/// The gradients of some of a rank's trainable flat parameters: of those that `counts`.
template <class Counts>
double squares_of_those(const Case& asked, int rank, const Counts& counts) {
  const std::vector<Floats> all = gradients_of(asked, 1, rank);
  std::vector<Floats> some = {{3.0F}};
  std::set<std::string> units;
  std::size_t next = 0;
  for (const FlatSpec& spec : specs_of(asked)) {
    if (!spec.trainable) continue;
    const Floats& mine = all[next++];
    if (counts(spec, mine, units.insert(spec.unit).second)) some.push_back(mine);
  }
  return squares_of(some);
}

}  // namespace

void judge_squares(const Setup& setup) {
  const Observations& seen = run("squares", setup);
  const Case& asked = seen.asked();
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    std::vector<Floats> mine = gradients_of(asked, 1, rank), padded = with_padding(asked, rank);
    std::vector<Floats> whole = gradients_of(asked, 1);
    const std::string bad = asked.options.value("bad", "");
    const bool is_bad = !bad.empty() && rank == asked.options.value("bad_rank", 0);
    if (is_bad) mine.front().front() = std::strtof(bad.c_str(), nullptr);
    const double without = squares_of(mine);
    for (auto* each : {&mine, &padded, &whole}) each->push_back({3.0F});
    const double value = seen.at(rank, "value").get<double>();
    const double firsts = squares_of_those(
        asked, rank, [](const auto&, const Floats&, bool is_first) { return is_first; });
    const double decaying = squares_of_those(
        asked, rank, [](const FlatSpec& spec, const Floats&, bool) { return spec.decay; });
    std::vector<Floats> shortened = gradients_of(asked, 1, rank);
    std::size_t next = 0;
    for (const FlatSpec& spec : specs_of(asked)) {
      if (!spec.trainable) continue;
      Floats& shard = shortened[next++];
      if (!shard.empty() && std::ssize(shard) < shard_numel(spec, asked.world_size)) {
        shard.pop_back();
      }
    }
    shortened.push_back({3.0F});
    const double full_ones =
        squares_of_those(asked, rank, [&](const FlatSpec& spec, const Floats& shard, bool) {
          return std::ssize(shard) == shard_numel(spec, asked.world_size);
        });
    Check check(
        "5.3", "over all ranks, every gradient element counts once and padding never counts", seen);
    check.at(rank).equal(
        "the number of collectives", std::ssize(seen.at(rank, "collectives")), 0,
        {{true, "You added the squares over the ranks, but that comes in step 5.4"}});
    check.equal("the sum of squares, which already held 9,", digits(value),
                digits(squares_of(mine)),
                {{std::isnan(value) && !std::isfinite(poison_of(asked)),
                  "You counted padding, or multiplied it by zero: 0 times infinity or NaN is NaN"},
                 {digits(value) == digits(squares_of(padded)), "You counted padding"},
                 {value == without, "You lost the 9 that the sum already held"},
                 {value == squares_of(whole), "You counted the gradients of all ranks"},
                 {value == squares_of(shortened),
                  "You left out the last element of shards that end in padding"},
                 {is_bad && std::isfinite(value),
                  "You left out gradients that are not finite, but step 5.4 must notice them"},
                 {value == decaying && value == firsts && value != full_ones,
                  "You counted only flat parameters with weight decay, or only one per unit"},
                 {value == decaying && value != full_ones,
                  "You counted only flat parameters with weight decay"},
                 {value == firsts && value != full_ones,
                  "You counted only one flat parameter per unit, but a unit can hold several "
                  "trainable ones"},
                 {value == full_ones && value != firsts,
                  "You left out shards that end in padding entirely, although their other elements "
                  "count"}});
    const Json& noted = seen.at(rank, "peak");
    check.equal("the peak of memory, above what was held before",
                noted.at("peak").at("total").get<std::int64_t>() -
                    noted.at("before").at("total").get<std::int64_t>(),
                0,
                {{true, "You allocated memory, but squares are added from the gradient itself"}});
    check.at_most("the largest block taken from the heap", noted.at("heap").get<std::int64_t>(),
                  4095, {{true, "You allocated a copy outside the memory tracker"}});
  }
}

void judge_clip(const Setup& setup) {
  const Observations& seen = run("clip", setup);
  const Case& asked = seen.asked();
  const int world = seen.world_size();
  const bool has_others = asked.options.value("others", false);
  const Floats others(static_cast<std::size_t>(has_others ? world : 0), 3.0F);  // one on each rank
  std::vector<Floats> counted = gradients_of(asked, 1);
  std::vector<Floats> counted_once = counted;  // by one rank's caller
  counted_once.push_back({3.0F});
  counted.push_back(others);
  const double norm = std::sqrt(squares_of(counted));
  const double max_norm = asked.options.value("unlimited", false)
                              ? std::numeric_limits<double>::infinity()
                              : asked.options.value("max_norm", 1.0);
  const double factor = optim::clip_factor(norm, max_norm);
  const auto specs = specs_of(asked);
  const std::size_t trainable = gradients_of(asked, 1).size();
  std::vector<std::vector<Floats>> mine_clipped(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    std::vector<Floats> all_clipped;
    Check can("5.4", "gradients with a finite norm can be clipped", seen);
    const auto said = seen.at(rank, "clipping").at("what").get<std::string>();
    can.at(rank).accepted(
        "clip_grad_norm()", seen.at(rank, "clipping"),
        {{said.find("an average of int64") != std::string::npos,
          "You averaged the counters over the ranks, but squares add"},
         {norm == 0,
          "You refused a gradient that is zero, but its norm is 0, and there is nothing to scale"},
         {said.find("is undefined") != std::string::npos,
          "You scaled the gradient of a frozen flat parameter, which has none"}});
    if (!can.ok()) return;
    Check one("5.4", "one all-reduce of integers adds the counters over the ranks", seen);
    std::vector<std::string> calls;
    for (const Json& each : seen.at(rank, "collectives")) {
      calls.push_back(fmt::format("{} of {} {} for {}/{}", each.at("op").get<std::string>(),
                                  each.at("numel").get<int>(), each.at("dtype").get<std::string>(),
                                  each.at("unit").get<std::string>(),
                                  each.at("phase").get<std::string>()));
    }
    const std::vector<std::string> expected = {fmt::format(
        "all_reduce of {} int64 for grad_norm/optimizer", std::int64_t{ExactSquareSum::kCounters})};
    const double observed = seen.at(rank, "norm").get<double>();
    const double local = std::sqrt(squares_of(gradients_of(asked, 1, rank)));
    one.at(rank).equal(
        "the collectives", calls, expected,
        {{calls.empty() && std::isinf(max_norm) && observed != norm,
          "You computed no norm when max_norm is infinite, but it is returned then too"},
         {calls.empty() && trainable == 0,
          "You sent nothing because nothing is trainable, but the caller's squares count too"},
         {calls.empty() && world == 1,
          "You sent nothing at W = 1, but a single rank calls the all-reduce as many do"},
         {calls.empty() && world > 1 && observed == local,
          "You used the norm of this rank's shards alone"},
         {calls.size() == 1 && calls.front().starts_with("all_reduce of 1 "),
          "You sent a floating-point sum, which depends on how the gradient is split; the counters "
          "do not"},
         {calls.size() == 1 &&
              calls.front().starts_with(expected.front().substr(0, expected.front().find(" for "))),
          "You sent the counters under another label"},
         {calls.size() > 1 && (calls.size() == trainable || calls.size() == trainable + 1) &&
              calls.front() == expected.front(),
          "You made one all-reduce per trainable flat parameter, but a single one carries the "
          "counters of all"}});
    Check whole(
        "5.4",
        "the norm is that of the whole gradient, and the same number on every rank and at every W",
        seen);
    whole.at(rank).equal(
        "the norm", digits(observed), digits(norm),
        {{world > 1 && observed == local, "You used the norm of this rank's shards alone"},
         {has_others && observed == std::sqrt(squares_of(gradients_of(asked, 1))),
          "You left out `squares`, which holds the rest of the gradient"},
         {has_others && world > 1 && observed == std::sqrt(squares_of(counted_once)),
          "You counted `squares` of one rank only, but each rank's caller has counted other "
          "elements"},
         {observed == norm * std::min(factor, 1.0),
          "You returned the norm after clipping, but the one before it is asked for"},
         {observed != norm && std::abs(observed / norm - 1) < 1e-6,
          "You rounded on the way: a floating-point sum depends on how the gradient is split"}});
    std::size_t next = 0;
    const auto gradients = gradients_of(asked, 1, rank);
    bool is_any_scaled = false;
    for (std::size_t i = 0, of = 0; i < specs.size(); ++i) {
      if (!specs[i].trainable) continue;
      const Floats& given = gradients[of++];
      is_any_scaled |= seen.floats(rank, fmt::format("gradient.{}", i)) != given;
    }
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].trainable) continue;
      const Floats& before = gradients[next++];
      Floats clipped = before;
      if (factor < 1) {
        for (float& value : clipped) value *= static_cast<float>(factor);
      }
      const Floats after = seen.floats(rank, fmt::format("gradient.{}", i));
      Floats up = before;
      for (float& value : up) value *= static_cast<float>(max_norm / (norm + 1e-6));
      Floats without_eps = before;
      for (float& value : without_eps) value *= static_cast<float>(std::min(max_norm / norm, 1.0));
      all_clipped.push_back(clipped);
      Check scaled("5.4",
                   "gradients are scaled down by max_norm / (norm + 1e-6), and never scaled up",
                   seen);
      scaled.at(rank, specs[i].unit)
          .bits(fmt::format("the gradient of flat parameter {}", i), after, clipped, -1,
                {{after == before && factor < 1 && norm <= max_norm,
                  "You scaled only above max_norm, but the 1e-6 already makes the factor less than "
                  "1 at this norm"},
                 {after == before && factor < 1 && is_any_scaled,
                  "You scaled some flat parameters' gradients, but not this one's"},
                 {after == before && factor < 1, "You did not scale this gradient"},
                 {after == without_eps && factor < 1,
                  "You scaled by max_norm / norm, without the 1e-6"},
                 {factor < 1 && is_close(after, clipped),
                  "You scaled in another way than by one multiplication with the factor, which "
                  "rounds differently"},
                 {after == up && factor == 1,
                  "You scaled up, although the norm is below the limit"}});
    }
    mine_clipped[static_cast<std::size_t>(rank)] = all_clipped;
    if (!seen.has(rank, "bad")) continue;
    Check finite("5.4", "a norm that is not finite throws an Error on all ranks", seen);
    bool is_refused_elsewhere = false;
    for (int other = 0; other < world; ++other) {
      is_refused_elsewhere |= seen.at(other, "bad").at("type") != "none";
    }
    finite.at(rank).that(
        seen.at(rank, "bad").at("type") != "none" || !is_refused_elsewhere,
        "an infinite or NaN gradient on one rank was accepted here and refused on another rank",
        "an Error on all ranks",
        {{true,
          "You looked at this rank's own gradient, but the norm of the whole is not finite"}});
    if (!finite.ok()) continue;
    finite.at(rank).refused("clipping with an infinite or NaN gradient on one rank",
                            seen.at(rank, "bad"), "Error", {"norm"});
    const Json& unlimited = seen.at(rank, "bad without a limit");
    finite.refused("the same with an infinite max_norm", unlimited, "Error", {"norm"},
                   {{unlimited.at("type") == "none",
                     "You returned the norm without a check when max_norm is infinite"}});
    const auto second = gradients_of(asked, 2, rank);
    for (std::size_t i = 0, next_of = 0; i < specs.size(); ++i) {
      if (!specs[i].trainable || next_of++ == 0) continue;  // the first holds what is bad
      finite.at(rank, specs[i].unit)
          .bits(fmt::format("after the error, the gradient of flat parameter {}", i),
                seen.floats(rank, fmt::format("bad gradient.{}", i)), second[next_of - 1], -1,
                {{true,
                  "You scaled before you checked the norm, and factors made of it are not "
                  "finite either"}});
    }
  }
  std::vector<Floats> everything;
  for (auto& mine : mine_clipped) everything.insert(everything.end(), mine.begin(), mine.end());
  everything.push_back(others);
  const double now = std::sqrt(squares_of(everything));
  for (int rank = 0; rank < world; ++rank) {
    Check again("5.4", "every call computes the norm of the current gradients", seen);
    const double observed = seen.at(rank, "norm again").get<double>();
    again.at(rank).equal(
        "the norm of a second call", digits(observed), digits(now),
        {{observed == norm && now != norm, "You returned the norm of the first call again"}});
  }
}

void judge_clip_beside_a_failure(const Setup& setup) {
  const Observations& seen = run("clip beside a failure", setup);
  const auto specs = specs_of(seen.asked());
  for (int rank = 0; rank < seen.world_size(); ++rank) {
    Check check("5.4", "if another rank fails during the all-reduce, no rank goes on", seen);
    check.at(rank).that(
        seen.at(rank, "failed").get<bool>(),
        "clip_grad_norm() returned a norm, although another rank failed before it had sent its "
        "counters",
        "the exception that wait() throws, Aborted",
        {{true, "You did not call wait(): destroying a Work waits too, but reports no failure"}});
    if (!check.ok()) continue;
    const auto given = gradients_of(seen.asked(), 1, rank);
    for (std::size_t i = 0, next = 0; i < specs.size(); ++i) {
      if (!specs[i].trainable) continue;
      check.at(rank, specs[i].unit)
          .bits(fmt::format("after the failure, the gradient of flat parameter {}", i),
                seen.floats(rank, fmt::format("gradient.{}", i)), given[next++]);
    }
  }
}

void judge_clip_beside(const Setup& setup, double distance) {
  const Case asked{.scenario = "clip",
                   .world_size = setup.world_size,
                   .seed = salted(setup.seed),
                   .delivery = setup.delivery,
                   .options = setup.options};
  Setup beside = setup;
  beside.options["max_norm"] = std::sqrt(squares_of(gradients_of(asked, 1))) + distance;
  judge_clip(beside);
}

}  // namespace fsdp::graded
