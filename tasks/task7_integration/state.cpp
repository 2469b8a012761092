// Task 7: integration, the state.     Handout: tasks/task7_integration/README.md
// Edit only this file and integration.cpp. Types and data members: integration.h
// Check with:  make test-task7

#include "base/check.h"
#include "base/todo.h"
#include "io/hf_folder.h"
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

void ShardedModel::save_full(const std::filesystem::path& folder) {
  std::vector<io::SafetensorsWriter::Item> items;
  for (FlatParameter* flat : flat_parameters()) {
    for (const Span& span : flat->spans()) {
      items.push_back({span.path, flat->shard().dtype(), span.shape});
    }
  }
  for (const nn::NamedParameter& parameter : replicated_) {
    const Tensor& master = replicated_masters_.of(parameter.variable);
    items.push_back({parameter.path, master.dtype(), master.shape()});
  }

  std::filesystem::path temporary;
  std::unique_ptr<io::SafetensorsWriter> writer;
  if (group_->rank() == 0) {
    temporary = io::begin_folder(folder);
    writer = std::make_unique<io::SafetensorsWriter>(
        temporary / "model.safetensors", items,
        std::map<std::string, std::string>{{"format", "pt"}});
  }
  for_each_full_parameter([&](const nn::NamedParameter&, const Tensor& full) {
    if (writer != nullptr) writer->write(full);
  });
  if (writer != nullptr) {
    writer->finish();
    if (const nn::TransformerConfig* config = root_.llama_config()) {
      io::write_text_atomically(temporary / "config.json", io::to_hf_config(*config));
    }
    io::publish_folder(temporary, folder);
  }
  group_->barrier({"save_full", Phase::checkpoint}).wait();
}

// ------------------------------------------------------------------- TODO 7.5
// Full state: visit it, one unit at a time, and load it. Of what is ignored, it is the masters.
//
// Keep:  nothing changes on any rank before every rank has found the file right.
// Hint:  full_state_of(unit, flat) above, and replicated_masters_.of(parameter.variable).
void ShardedModel::for_each_full_parameter(
    const std::function<void(const nn::NamedParameter&, const Tensor& full)>& visit) {
  todo("7.5", visit, units_, replicated_);
}

void ShardedModel::load_full(const std::filesystem::path& folder) {
  const io::SafetensorsReader reader(io::existing_folder(folder) / "model.safetensors");
  todo("7.5", reader, units_);
}

// ------------------------------------------------------------------- TODO 7.6
// Sharded checkpoints: every rank writes its own slices, and reads its own, whatever W was then.
//
// Keep:  a slice is called "param/<path>", or "<state>/<path>" for a state of the optimizer, as in
//        5.5. Of what is ignored, the masters are saved.
std::vector<io::StateSlice> ShardedModel::state_slices(bool with_replicated) {
  todo("7.6", with_replicated, optimizer_, replicated_);
}

void ShardedModel::save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                                   std::map<std::string, std::string> metadata) {
  std::vector<io::StateSlice> slices;  // of this rank
  todo("7.6", slices, metadata);
  const auto barrier = [this] { group_->barrier({"save", Phase::checkpoint}).wait(); };
  if (group_->rank() == 0) folder.begin(step);
  barrier();  // the folder is there
  io::write_slices(folder.temporary(step), group_->rank(), group_->size(), slices, metadata);
  barrier();  // every file is written and synced
  if (group_->rank() == 0) folder.publish(step);
  barrier();  // it can be loaded
}

std::map<std::string, std::string> ShardedModel::load_checkpoint(
    const std::filesystem::path& folder) {
  const io::SliceReader reader(folder);
  todo("7.6", reader, optimizer_);
}

}  // namespace fsdp
