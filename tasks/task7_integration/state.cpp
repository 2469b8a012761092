// Task 7: integration, the state.     Handout: tasks/task7_integration/README.md
// Edit only this file and integration.cpp. Types and data members: integration.h
// Check with:  make test-task7

#include "base/check.h"
#include "base/todo.h"
#include "io/hf_folder.h"
#include "nn/transformer.h"
#include "task7_integration/integration.h"

#include <map>
#include <utility>

namespace fsdp {

// ------------------------------------------------------------------- TODO 7.5
// Full state, at most one unit of it at a time.
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
