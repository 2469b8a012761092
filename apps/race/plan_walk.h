/// @file
/// @ingroup race
/// A plan on paper: the third Schedule of the walk, and what it says of a plan.
#pragma once

#include "comm/collective_op.h"
#include "paper/kernel_times.h"
#include "paper/schedule.h"
#include "paper/segments.h"
#include "race/policy.h"
#include "race/track.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::race {

/// The decisions of a plan: of each unit its own, and as many gathers under way as it says.
class PlanSchedule final : public paper::Schedule {
 public:
  /// @param shape whose units are those of the plan
  PlanSchedule(const Plan& plan, const paper::ModelShape& shape);

  paper::AfterForward after_forward(const paper::UnitShape& unit) const override;
  paper::UnitPlaces gathers_now(int unit, bool is_backward, paper::UnitPlaces next) const override;
  int gathers_in_flight() const override;
  std::optional<int> reach(bool /*is_backward*/) const override { return {}; }
  bool orders_kept_units() const override { return true; }
  bool has_buffers() const override { return false; }
  bool reduces(int /*m*/) const override { return true; }

 private:
  std::vector<std::array<std::vector<int>, 2>> gathers_;           // by place: forward, backward
  std::map<std::string, paper::AfterForward, std::less<>> rules_;  // without the root
};

/// A track on paper: what a policy is told of it, and the time and the peak of plans.
class PaperTrack {
 public:
  explicit PaperTrack(const Track& track);

  const std::vector<Module>& modules() const { return modules_; }
  const paper::KernelTimes& kernels() const { return kernels_; }
  /// Of a step that is not the first, equal to the engine's on the fake device.
  /// @throws InputError if check_plan() does.
  Estimate estimate(const Plan& plan) const;
  /// Of plain FSDP with one unit gathered ahead, and nothing checkpointed.
  Estimate plain_fsdp() const;
  /// Its estimate() needs this object.
  Problem problem() const;
  const Track& track() const { return track_; }

 private:
  std::int64_t channel_ps(CollectiveOp op, std::int64_t numel, std::int64_t element) const;

  const Track track_;
  paper::MemoryOptions options_;
  paper::KernelTimes kernels_;
  paper::TapedModel tape_;   // nothing checkpointed,
  paper::TapedModel again_;  // and every block
  std::vector<Module> modules_;
};

}  // namespace fsdp::race
