// Task 7: integration, the state.     Handout: tasks/task7_integration/README.md
// Edit only this file and integration.cpp. Types and data members: integration.h
// Check with:  make test-task7

#include "base/check.h"
#include "base/todo.h"
#include "io/hf_folder.h"
#include "nn/transformer.h"
#include "task7_integration/integration.h"
#include "tensor/cast.h"

#include <map>
#include <utility>

namespace fsdp {

namespace {

/// The full vector (P) in the dtype of the shards: full() of the unsharded unit, except under mixed
/// precision, where that holds copies of fewer bits and the shards themselves must be gathered. It
/// is on the device, also when the shards are in host memory.
[[maybe_unused]] Tensor full_state_of(ShardedUnit& unit, const FlatParameter& flat) {
  const DType dtype = flat.shard().dtype();
  if (flat.full().dtype() == dtype) {
    unit.finish_unshard(Phase::checkpoint);
    return flat.full();
  }
  const AllocationScope as_full(MemoryKind::unsharded_param,
                                std::make_shared<const Owner>(Owner{unit.name(), "full state"}));
  Tensor full = Tensor::empty({flat.padded_numel()}, dtype, flat.full().device());
  const Tensor input = gather_input(flat.shard(), full, Phase::checkpoint);
  unit.group().all_gather(full, input, {unit.name(), Phase::checkpoint}).wait();
  return full;
}

}  // namespace

// ------------------------------------------------------------------- TODO 7.5
// Full state, at most one unit of it at a time. Of what is ignored, it is the masters.
//
// Hint:  full_state_of(unit, flat) above, and replicated_masters_.of(parameter.variable).
void ShardedModel::for_each_full_parameter(
    const std::function<void(const nn::NamedParameter&, const Tensor& full)>& visit) {
  todo("7.5", visit, units_, replicated_);
}

void ShardedModel::save_full(const std::filesystem::path& folder) {
  todo("7.5", folder, units_);
}

void ShardedModel::load_full(const std::filesystem::path& folder) {
  todo("7.5", folder, units_);
}

// ------------------------------------------------------------------- TODO 7.6
// Sharded checkpoints: every rank writes its own slices into one folder that appears whole.
//
// Keep:  a slice is called "param/<path>", or "<state>/<path>" for a state of the optimizer, as in
//        5.5. Of what is ignored, the masters are saved.
std::vector<io::StateSlice> ShardedModel::state_slices(bool with_replicated) {
  todo("7.6", with_replicated, optimizer_, replicated_);
}

void ShardedModel::save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                                   std::map<std::string, std::string> metadata) {
  todo("7.6", folder, step, metadata);
}

std::map<std::string, std::string> ShardedModel::load_checkpoint(
    const std::filesystem::path& folder) {
  todo("7.6", folder, optimizer_);
}

}  // namespace fsdp
