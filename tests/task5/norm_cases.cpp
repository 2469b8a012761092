#include "task5/cases.h"
#include "task5/oracle.h"

#include "graded/run.h"
#include "optim/gradient_engine.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
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

/// The same with the padding that a case has poisoned.
std::vector<Floats> with_padding(const Case& asked, int rank) {
  std::vector<Floats> all = gradients_of(asked, 1, rank);
  std::size_t next = 0;
  for (const FlatSpec& spec : specs_of(asked)) {
    if (!spec.trainable) continue;
    all[next++].resize(static_cast<std::size_t>(shard_numel(spec, asked.world_size)),
                       asked.options.value("poison", 0.0F));
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
    const double without = squares_of(mine);
    for (auto* each : {&mine, &padded, &whole}) each->push_back({3.0F});
    const double value = seen.at(rank, "value").get<double>();
    const double firsts = squares_of_those(
        asked, rank, [](const auto&, const Floats&, bool is_first) { return is_first; });
    const double full_ones =
        squares_of_those(asked, rank, [&](const FlatSpec& spec, const Floats& shard, bool) {
          return std::ssize(shard) == shard_numel(spec, asked.world_size);
        });
    Check check(
        "5.3", "over all ranks, every gradient element counts once and padding never counts", seen);
    check.at(rank).equal(
        "the number of collectives", std::ssize(seen.at(rank, "collectives")), 0,
        {{true, "the squares are added over the ranks, but that comes in step 5.4"}});
    check.equal("the sum of squares, which already held 9,", digits(value),
                digits(squares_of(mine)),
                {{value == squares_of(padded), "padding was counted"},
                 {value == without, "the sum lost the 9 that it already held"},
                 {value == squares_of(whole), "the sum holds the squares of all ranks"},
                 {value == firsts && value != full_ones,
                  "only one flat parameter per unit was counted, but a unit can hold several "
                  "trainable ones"},
                 {value == full_ones && value != firsts,
                  "a shard that ends in padding was left out entirely, although its other "
                  "elements count"}});
    const Json& noted = seen.at(rank, "peak");
    check.equal("the peak of memory, above what was held before",
                noted.at("peak").at("total").get<std::int64_t>() -
                    noted.at("before").at("total").get<std::int64_t>(),
                0);
    check.at_most("the largest block taken from the heap", noted.at("heap").get<std::int64_t>(),
                  4095, {{true, "a copy outside the memory tracker"}});
  }
}

void judge_clip(const Setup& setup) {
  const Observations& seen = run("clip", setup);
  const Case& asked = seen.asked();
  const int world = seen.world_size();
  const bool has_others = asked.options.value("others", false);
  const Floats others(static_cast<std::size_t>(has_others ? world : 0), 3.0F);  // one on each rank
  std::vector<Floats> counted = gradients_of(asked, 1);
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
    can.at(rank).accepted("clip_grad_norm()", seen.at(rank, "clipping"));
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
          "nothing is clipped when max_norm is infinite, but the norm must still be computed"},
         {calls.empty() && world > 1 && observed == local,
          "this is the norm of this rank's shard alone"},
         {calls.size() > 1 && calls.size() == trainable && calls.front() == expected.front(),
          "there was one all-reduce per trainable flat parameter, but a single one carries the "
          "counters of all"}});
    Check whole(
        "5.4",
        "the norm is that of the whole gradient, and the same number on every rank and at every W",
        seen);
    whole.at(rank).equal(
        "the norm", digits(observed), digits(norm),
        {{world > 1 && observed == local, "this is the norm of this rank's shard alone"},
         {has_others && observed == std::sqrt(squares_of(gradients_of(asked, 1))),
          "this is the norm of the shards alone, without `squares`, which holds "
          "the rest of the gradient"},
         {observed == norm * std::min(factor, 1.0),
          "this is the norm after clipping, not before it"},
         {observed != norm && std::abs(observed / norm - 1) < 1e-6,
          "the norm is close but was rounded: a floating-point sum depends on how "
          "the gradient is split"}});
    std::size_t next = 0;
    const auto gradients = gradients_of(asked, 1, rank);
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
                  "the gradient is scaled only above max_norm, but the 1e-6 already makes the "
                  "factor less than 1 at this norm"},
                 {after == before && factor < 1, "the gradient was not scaled"},
                 {after == without_eps && factor < 1,
                  "the gradient was scaled by max_norm / norm, without the 1e-6"},
                 {after == up && factor == 1,
                  "the gradient was scaled up, although the norm is below the limit"}});
    }
    mine_clipped[static_cast<std::size_t>(rank)] = all_clipped;
    if (!seen.has(rank, "bad")) continue;
    Check finite("5.4", "a norm that is not finite throws an Error on all ranks", seen);
    finite.at(rank).refused("clipping with one infinite or NaN gradient on one rank",
                            seen.at(rank, "bad"), "Error", {"norm"});
    const auto second = gradients_of(asked, 2, rank);
    for (std::size_t i = 0, next_of = 0; i < specs.size(); ++i) {
      if (!specs[i].trainable || next_of++ == 0) continue;  // the first holds what is bad
      finite.at(rank, specs[i].unit)
          .bits(fmt::format("after the error, the gradient of flat parameter {}", i),
                seen.floats(rank, fmt::format("bad gradient.{}", i)), second[next_of - 1]);
    }
  }
  std::vector<Floats> everything;
  for (auto& mine : mine_clipped) everything.insert(everything.end(), mine.begin(), mine.end());
  everything.push_back(others);
  const double now = std::sqrt(squares_of(everything));
  for (int rank = 0; rank < world; ++rank) {
    Check again("5.4", "every call computes the norm of the current gradients", seen);
    const double observed = seen.at(rank, "norm again").get<double>();
    again.at(rank).equal("the norm of a second call", digits(observed), digits(now),
                         {{observed == norm && now != norm, "this is the norm of the first call"}});
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
