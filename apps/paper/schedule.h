/// @file
/// @ingroup paper
/// Schedule: what a walk through a step asks before it acts on a unit.
#pragma once

#include "paper/memory_options.h"
#include "paper/model_shape.h"

namespace fsdp::paper {

/// What becomes of a unit's full parameters after a forward with a tape. (Without one, they are
/// freed.)
enum class AfterForward {
  keep,
  free,
  keep_part,  ///< 1/s, from which s ranks gather again
};

/// The decisions of FSDP, apart from what follows from them.
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual AfterForward after_forward(const UnitShape& unit) const = 0;
  /// How many of the units that compute next, in forward or in backward, are gathered while one
  /// computes;
  virtual int gathers_ahead() const = 0;
  /// and how many gathers may be under way when another is started for that.
  virtual int gathers_in_flight() const = 0;
  /// Whether gradients are reduced at the end of micro-step `m`, and not only summed on the rank.
  virtual bool reduces(int m) const = 0;
};

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
  int gathers_ahead() const override { return recipe_.sharding.prefetch_depth; }
  int gathers_in_flight() const override {
    const int limit = recipe_.sharding.in_flight_limit;
    return limit == 0 ? recipe_.sharding.prefetch_depth : limit;
  }
  bool reduces(int m) const override { return (m + 1) % recipe_.micro_steps_per_reduction == 0; }

 private:
  const optim::Recipe& recipe_;
};

}  // namespace fsdp::paper
