/// @file
/// @ingroup race
/// PlanExecutor: carries a plan out in the engine.
#pragma once

#include "nn/transformer.h"
#include "race/policy.h"
#include "task7_integration/integration.h"

#include <map>
#include <vector>

namespace fsdp::race {

/// The module that a plan calls so. @throws Error if there is none
nn::Module& module_named(nn::TransformerLM& model, const std::string& name);

/// Makes the modules of the plan units-to-be, and checkpoints those that it names. Before the model
/// is sharded.
void prepare(nn::TransformerLM& model, const Plan& plan);

/// Stands in the units' slot for a scheduler, where the Prefetcher would, and tells each unit what
/// to do after its forward. The model is sharded with parts_of(plan), and without a Prefetcher.
class PlanExecutor final : public UnshardScheduler {
 public:
  PlanExecutor(const Plan& plan, ShardedModel& model);
  ~PlanExecutor() override;
  PlanExecutor(const PlanExecutor&) = delete;
  PlanExecutor& operator=(const PlanExecutor&) = delete;

  void before_forward(ShardedUnit& unit) override;
  void before_backward(ShardedUnit& unit) override;

 private:
  struct Gathers {
    std::vector<ShardedUnit*> forward, backward;
  };
  std::map<const ShardedUnit*, Gathers> gathers_;
  std::vector<ShardedUnit*> scheduled_;
};

}  // namespace fsdp::race
