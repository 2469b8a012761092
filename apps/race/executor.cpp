#include "race/executor.h"

#include "base/check.h"
#include "race/plan_text.h"
#include "task8_beyond/checkpoint.h"

namespace fsdp::race {

nn::Module& module_named(nn::TransformerLM& model, const std::string& name) {
  nn::Module* found = name == nn::kHeadName ? &model.head() : model.find(name);
  FSDP_CHECK(found != nullptr, "the model has no module {}", name);
  return *found;
}

void prepare(nn::TransformerLM& model, const Plan& plan) {
  for (const Unit& unit : plan.units) {
    if (unit.module == kRoot) continue;
    nn::Module& module = module_named(model, unit.module);
    if (unit.checkpoint) checkpoint(module);
    fully_shard(module);
  }
}

PlanExecutor::PlanExecutor(const Plan& plan, ShardedModel& model) {
  for (const auto& unit : model.units()) {
    unit->scheduler = this;
    scheduled_.push_back(unit.get());
  }
  for (const Unit& unit : plan.units) {
    ShardedUnit& sharded = model.unit(unit.module);
    Gathers& gathers = gathers_[&sharded];
    for (const std::string& each : unit.before_forward) {
      gathers.forward.push_back(&model.unit(each));
    }
    for (const std::string& each : unit.before_backward) {
      gathers.backward.push_back(&model.unit(each));
    }
    if (unit.module == kRoot) continue;
    const ReshardAfterForward of_model = sharded.options().reshard_after_forward;
    ReshardAfterForward rule = ReshardAfterForward::always();
    if (unit.keep) rule = ReshardAfterForward::never();
    if (unit.keep_part && of_model.is_within()) rule = of_model;  // else too few ranks
    sharded.set_options({.reshard_after_forward = rule});
  }
}

PlanExecutor::~PlanExecutor() {
  for (ShardedUnit* unit : scheduled_) unit->scheduler = nullptr;
}

void PlanExecutor::before_forward(ShardedUnit& unit) {
  for (ShardedUnit* each : gathers_[&unit].forward) each->start_unshard(Phase::forward);
}

void PlanExecutor::before_backward(ShardedUnit& unit) {
  for (ShardedUnit* each : gathers_[&unit].backward) each->start_unshard(Phase::backward);
}

}  // namespace fsdp::race
