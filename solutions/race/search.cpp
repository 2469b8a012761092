// The race, by search: change a plan at random, and keep the change if the walk says that it helps.
//
// A plan is written as numbers that can be changed one at a time. Of each gather there is a lead:
// by how many units' computations it starts before its use.
//
//     point      0   1  …  n-1 | n    n+1 …  2n-1
//     computes   forward of    | backward of
//                0   1  …  n-1 | n-1  n-2 …  0
//
// A worse plan is sometimes accepted too, ever less often (simulated annealing). The number of
// trials is fixed and so are the random numbers: the same plan comes out on every machine.

#include "race/policy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>

namespace fsdp::race {
namespace {

enum class Kept { nothing, part, all };

struct Genes {
  std::vector<bool> is_unit, again;
  std::vector<Kept> kept;
  std::vector<std::size_t> forward_lead, backward_lead;
  int neighbors = 0;  // whether a unit keeps a part or not
};

class Search {
 public:
  explicit Search(const Problem& problem) : problem_(problem), n_(problem.modules.size()) {
    for (int s = 2; s < problem.ranks; ++s) {
      if (problem.ranks % s == 0) sizes_.push_back(s);
    }
  }

  Plan run() {
    for (const bool again : {false, true}) {
      for (const std::size_t lead : {1U, 2U, 4U}) {
        for (const Kept kept : {Kept::nothing, Kept::all}) start_from(kept, 0, again, lead);
        for (const int size : sizes_) start_from(Kept::part, size, again, lead);
      }
    }
    Genes now = best_;
    double cost_now = cost_;
    for (int trial = 0; trial < kTrials; ++trial) {
      // The share of a step by which a plan may be worse: from 1 in 200 down to nothing.
      const double heat = 0.005 * (1 - static_cast<double>(trial) / kTrials);
      Genes other = now;
      for (std::size_t changes = 1 + below(3); changes > 0; --changes) change(other);
      const double cost = cost_of(other);
      const double slack = 1 + heat * static_cast<double>(below(1000)) / 1000;
      if (cost > cost_now * slack) continue;
      now = std::move(other);
      cost_now = cost;
      remember(now, cost);
    }
    return plan_of(best_);
  }

 private:
  static constexpr int kTrials = 20000;

  std::size_t below(std::size_t n) { return random_() % n; }

  void start_from(Kept kept, int neighbors, bool again, std::size_t lead) {
    Genes genes{std::vector(n_, true), std::vector(n_, again), std::vector(n_, kept),
                std::vector(n_, lead), std::vector(n_, lead),  neighbors};
    genes.kept.back() = Kept::all;
    for (std::size_t i = 0; i < n_; ++i) {
      if (!problem_.modules[i].is_block) genes.again[i] = false;
    }
    remember(genes, cost_of(genes));
  }

  void remember(const Genes& genes, double cost) {
    if (!best_.kept.empty() && cost >= cost_) return;
    best_ = genes;
    cost_ = cost;
  }

  /// One decision, of one unit or of several that follow each other.
  void change(Genes& genes) {
    const std::size_t first = below(n_), kind = below(13);
    const std::size_t last = below(2) == 0 ? first : std::min(n_ - 1, first + below(n_));
    const bool value = below(2) == 0;
    const bool is_part = genes.neighbors > 0 && below(3) == 0;
    const Kept kept = is_part ? Kept::part : value ? Kept::all : Kept::nothing;
    const std::size_t lead = below(8) == 0 ? below(2 * n_) : below(6);
    for (std::size_t i = first; i <= last; ++i) {
      if (kind < 4) genes.kept[i] = kept;
      if (kind >= 4 && kind < 6 && problem_.modules[i].is_block) genes.again[i] = value;
      if (kind >= 6 && kind < 8) genes.forward_lead[i] = lead;
      if (kind >= 8 && kind < 11) genes.backward_lead[i] = lead;
    }
    if (kind == 11) genes.is_unit[first] = value;
    if (kind == 12 && !sizes_.empty()) genes.neighbors = sizes_[below(sizes_.size())];
    if (std::ranges::find(genes.is_unit, true) == genes.is_unit.end()) genes.is_unit[0] = true;
  }

  Plan plan_of(const Genes& genes) const {
    Plan made;
    made.neighbors = genes.neighbors;
    std::vector<std::size_t> units;
    for (std::size_t i = 0; i < n_; ++i) {
      if (!genes.is_unit[i]) continue;
      units.push_back(i);
      made.units.push_back({.module = problem_.modules[i].name,
                            .keep = genes.kept[i] == Kept::all,
                            .keep_part = genes.kept[i] == Kept::part,
                            .checkpoint = genes.again[i]});
    }
    const std::size_t n = units.size();
    const auto start_at = [&](std::size_t point, std::size_t unit) {
      const std::string& name = made.units[unit].module;
      if (point < n) {
        made.units[point].before_forward.push_back(name);
      } else {
        made.units[2 * n - 1 - point].before_backward.push_back(name);
      }
    };
    for (std::size_t unit = 0; unit < n; ++unit) {
      const std::size_t lead = genes.forward_lead[units[unit]];
      if (unit > 0 && lead > 0) start_at(unit - std::min(unit, lead), unit);
    }
    for (std::size_t unit = n; unit-- > 0;) {  // not before its own forward is over
      const std::size_t use = 2 * n - 1 - unit, lead = genes.backward_lead[units[unit]];
      if (made.units[unit].keep || lead == 0) continue;
      const std::size_t point = std::max(use - std::min(use, lead), unit + 1);
      if (point < use) start_at(point, unit);
    }
    return made;
  }

  /// The time of a step; a plan that does not fit is the worse the more bytes it lacks.
  double cost_of(const Genes& genes) const {
    const Estimate estimate = problem_.estimate(plan_of(genes));
    const auto step = static_cast<double>(estimate.step_ps);
    if (estimate.peak_bytes <= problem_.memory_bytes) return step;
    return step * (10 * static_cast<double>(estimate.peak_bytes) /
                   static_cast<double>(problem_.memory_bytes));
  }

  const Problem& problem_;
  std::size_t n_;
  std::vector<int> sizes_;  // of neighbors that keep parts
  std::mt19937 random_{1};
  Genes best_;
  double cost_ = 0;
};

}  // namespace

Plan plan(const Problem& problem) { return Search(problem).run(); }

}  // namespace fsdp::race
