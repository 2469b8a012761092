// Task 3: the forward pass.     Handout: tasks/task3_forward/README.md
// Edit only this file. Types and data members: forward.h
// Check with:  make test-task3

#include "task3_forward/forward.h"

#include "base/check.h"
#include "base/todo.h"
#include "tensor/cast.h"
#include "tensor/ops.h"

#include <utility>

namespace fsdp {

ShardedUnit::ShardedUnit(std::string name, nn::Module& module,
                         std::vector<std::unique_ptr<FlatParameter>> flat_parameters,
                         std::shared_ptr<ProcessGroup> group,
                         std::shared_ptr<ProcessGroup> subgroup, Options options)
    : name_(std::move(name)),
      module_(module),
      flats_(std::move(flat_parameters)),
      group_(std::move(group)),
      subgroup_(std::move(subgroup)),
      options_(options) {
  options_.reshard_after_forward.validate(group_->size());
  const bool in_subgroups =
      options_.reshard_after_forward.kind == ReshardAfterForward::Kind::within;
  FSDP_CHECK(
      in_subgroups == (subgroup_ != nullptr),
      "unit {}: a subgroup is required with reshard_after_forward = s, and not allowed otherwise",
      name_);
  module_.set_unit_name(name_);
}

ShardedUnit::~ShardedUnit() {
  for (const int hook : hooks_) module_.remove_hook(hook);
}

// ------------------------------------------------------------------- TODO 3.1
// Allocate the full parameters and start to gather them.
//
// Keep:  every all-gather writes into the flat vector itself (full()), where the model's views
//        point, and reads to_gather(flat, phase): without mixed precision that is the shard.
//        Do nothing unless the unit is sharded, and do not wait.
// Note:  if parts are kept for the subgroup (3.4), gather these, in the subgroup.
void ShardedUnit::start_unshard(Phase phase) {
  todo("3.1", phase, state_, gathers_, flats_);
}

// ------------------------------------------------------------------- TODO 3.2
// Wait until the full parameters can be read.
//
// Keep:  works from every state. Afterwards no parts are kept for the subgroup.
void ShardedUnit::finish_unshard(Phase phase) {
  todo("3.2", phase, state_, gathers_);
}

// ------------------------------------------------------------------- TODO 3.3
// Free the full parameters.
//
// Keep:  free the storage, do not replace it. So the views stay valid, also those autograd saved.
//        Drop the parts kept for the subgroup too: after an optimizer step they would be stale.
// Hint:  a storage under a running gather cannot be freed.
void ShardedUnit::reshard() {
  todo("3.3", state_, flats_);
}

std::shared_ptr<Storage> ShardedUnit::subgroup_storage(const FlatParameter& flat) const {
  const auto part = flat.padded_numel() / subgroup_->size();
  return std::make_shared<Storage>(
      flat.full().device(), static_cast<std::size_t>(part) * size_of(flat.full().dtype()),
      MemoryKind::unsharded_param, std::make_shared<const Owner>(Owner{name_, "subgroup part"}));
}

// ------------------------------------------------------------------- TODO 3.4
// Keep 1/s of the full parameters, then free the rest.
//
//     W = 4, s = 2      rank 0 keeps [0, P/2)   rank 1 keeps [P/2, P)   |  ranks 2, 3 likewise
//
// Set:   subgroup_parts_, one (P/s) tensor per flat parameter, over subgroup_storage(flat).
// Keep:  rank r of the subgroup keeps part r, so its all-gather restores the whole vector.
void ShardedUnit::reshard_to_subgroup() {
  todo("3.4", subgroup_parts_, state_);
}

// ------------------------------------------------------------------- TODO 3.5
// Attach the two halves to the module.
//
// Keep:  pre-forward: the unit is unsharded, and then the scheduler (if any) is called.
//        post-forward: with a tape, follow the options, the root rule (keep_until_backward) first.
//        Without a tape (grad_enabled() is false) there will be no backward, so keep nothing.
void ShardedUnit::install_hooks() {
  todo("3.5", module_, hooks_);
  hooks_.push_back(module_.register_forward_hook([this](nn::Module&) {
    if (backward != nullptr && grad_enabled()) backward->after_forward();
  }));
  hooks_.push_back(module_.register_full_backward_pre_hook([this](nn::Module&) {
    if (backward != nullptr) backward->pre_backward();
  }));
  hooks_.push_back(module_.register_full_backward_hook([this](nn::Module&) {
    if (backward != nullptr) backward->post_backward();
  }));
}

void ShardedUnit::pre_forward() {
  todo("3.5", scheduler);
}

void ShardedUnit::post_forward() {
  todo("3.5", options_);
}

// ------------------------------------------------------------------- TODO 3.6
// Cast what is gathered, if the model reads another dtype than the shard has.
//
// Keep:  gather_input() of tensor/cast.h makes the copy. It is counted as ALL_GATHER, and its owner
//        is this unit. The Work keeps it alive, so keep no reference to it.
Tensor ShardedUnit::to_gather(const FlatParameter& flat, Phase phase) const {
  const Tensor &shard = flat.shard(), &full = flat.full();
  if (shard.dtype() == full.dtype() && shard.device() == full.device()) return shard;
  todo("3.6", name_, phase);
}

bool ShardedUnit::has_trainable() const {
  for (const auto& flat : flats_) {
    if (flat->requires_grad()) return true;
  }
  return false;
}

std::int64_t ShardedUnit::padded_numel() const {
  std::int64_t total = 0;
  for (const auto& flat : flats_) total += flat->padded_numel();
  return total;
}

}  // namespace fsdp
