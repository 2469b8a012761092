/// @file
/// @ingroup paper
/// Schedule: what a walk through a step asks before it acts on a unit.
#pragma once

#include "paper/memory_options.h"
#include "paper/model_shape.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

namespace fsdp::paper {

/// What becomes of a unit's full parameters after a forward with a tape. (Without one, they are
/// freed.)
enum class AfterForward {
  keep,
  free,
  keep_part,  ///< 1/s, from which s ranks gather again
};

/// Units, by their places in ModelShape::units.
using UnitPlaces = std::span<const int>;

/// The decisions of FSDP, apart from what follows from them.
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual AfterForward after_forward(const UnitShape& unit) const = 0;
  /// `unit` is about to compute: the units whose gathers start now, in this order. What is gathered
  /// already is left out.
  /// @param next the units that compute after it in this pass, as far as they are known
  virtual UnitPlaces gathers_now(int unit, bool is_backward, UnitPlaces next) const = 0;
  /// How many gathers may be under way when another is started for that.
  virtual int gathers_in_flight() const = 0;
  /// If the decisions are alike for units that are alike: how many of the units that compute next
  /// they reach to. None: each unit has its own.
  virtual std::optional<int> reach(bool is_backward) const = 0;
  /// Whether the units that are kept since forward have their place in the order of backward.
  virtual bool orders_kept_units() const = 0;
  /// Whether a collective has a buffer of its own: a gather is copied out of it into parameters,
  /// and gradients, which autograd makes one by one, are copied into it. Else a unit's flat
  /// parameter and its gradient are the buffers.
  virtual bool has_buffers() const = 0;
  /// Whether gradients are reduced at the end of micro-step `m`, and not only summed on the rank.
  virtual bool reduces(int m) const = 0;
};

/// The first `depth` of the units that compute next.
inline UnitPlaces ahead(UnitPlaces next, int depth) {
  return next.first(std::min(next.size(), static_cast<std::size_t>(depth)));
}

/// Those of Unshard's engine.
class RecipeSchedule final : public Schedule {
 public:
  explicit RecipeSchedule(const optim::Recipe& recipe) : recipe_(recipe) {}
  AfterForward after_forward(const UnitShape& unit) const override {
    using Kind = ReshardAfterForward::Kind;
    const Kind kind = recipe_.sharding.reshard_after_forward.kind;
    if (unit.keep || kind == Kind::never) return AfterForward::keep;
    return kind == Kind::within ? AfterForward::keep_part : AfterForward::free;
  }
  UnitPlaces gathers_now(int /*unit*/, bool /*is_backward*/, UnitPlaces next) const override {
    return ahead(next, recipe_.sharding.prefetch_depth);
  }
  std::optional<int> reach(bool /*is_backward*/) const override {
    return recipe_.sharding.prefetch_depth;
  }
  int gathers_in_flight() const override {
    const int limit = recipe_.sharding.in_flight_limit;
    return limit == 0 ? recipe_.sharding.prefetch_depth : limit;
  }
  bool orders_kept_units() const override { return false; }
  bool has_buffers() const override { return false; }
  bool reduces(int m) const override { return recipe_.plan().ends_reduction(m); }

 private:
  const optim::Recipe& recipe_;
};

/// Those of FSDP2 (torch.distributed.fsdp.fully_shard): forward gathers a unit when it computes,
/// and backward one unit ahead.
class TorchSchedule final : public Schedule {
 public:
  explicit TorchSchedule(const optim::Recipe& recipe) : recipe_(recipe) {}
  AfterForward after_forward(const UnitShape& unit) const override {
    const bool never =
        recipe_.sharding.reshard_after_forward.kind == ReshardAfterForward::Kind::never;
    return unit.keep || never ? AfterForward::keep : AfterForward::free;
  }
  UnitPlaces gathers_now(int /*unit*/, bool is_backward, UnitPlaces next) const override {
    return ahead(next, *reach(is_backward));
  }
  std::optional<int> reach(bool is_backward) const override { return is_backward ? 1 : 0; }
  int gathers_in_flight() const override { return 1; }
  bool orders_kept_units() const override { return true; }
  bool has_buffers() const override { return true; }
  bool reduces(int /*m*/) const override { return true; }

 private:
  const optim::Recipe& recipe_;
};

}  // namespace fsdp::paper
