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
  // SOLUTION 7.5: todo(visit, units_, replicated_)
  for (const auto& unit : units_) {
    for (const auto& flat : unit->flat_parameters()) {
      const Tensor full = full_state_of(*unit, *flat);
      for (std::size_t i = 0; i < flat->spans().size(); ++i) {
        const Span& span = flat->spans()[i];
        visit(flat->parameters()[i], full.narrow(0, span.begin, span.numel).view(span.shape));
      }
    }
    unit->reshard();
  }
  for (const nn::NamedParameter& parameter : replicated_) {
    visit(parameter, replicated_masters_.of(parameter.variable));
  }
  // END SOLUTION
}

void ShardedModel::load_full(const std::filesystem::path& folder) {
  const io::SafetensorsReader reader(io::existing_folder(folder) / "model.safetensors");
  // SOLUTION 7.5: todo(reader, units_)
  io::check_hf_parameters(reader, root_.named_parameters());
  group_->barrier({"load_full", Phase::checkpoint}).wait();  // every rank found it right
  reshard();
  for (FlatParameter* flat : flat_parameters()) {
    for (const ShardPiece& piece : flat->pieces_of(flat->rank())) {
      reader.read_slice(flat->spans()[piece.span].path, piece.param_begin,
                        flat->shard().narrow(0, piece.shard_begin, piece.numel));
    }
  }
  for (const nn::NamedParameter& parameter : replicated_) {
    reader.read(parameter.path, replicated_masters_.of(parameter.variable));
  }
  // END SOLUTION
}

// ------------------------------------------------------------------- TODO 7.6
// Sharded checkpoints: every rank writes its own slices, and reads its own, whatever W was then.
//
// Keep:  a slice is called "param/<path>", or "<state>/<path>" for a state of the optimizer, as in
//        5.5. Of what is ignored, the masters are saved.
std::vector<io::StateSlice> ShardedModel::state_slices(bool with_replicated) {
  // SOLUTION 7.6: todo(with_replicated, optimizer_, replicated_)
  std::vector<io::StateSlice> slices = optimizer().state_slices();
  if (!with_replicated) return slices;
  const auto add_whole = [&](const std::string& name, const Tensor& values) {
    slices.push_back({name, values.shape(), 0, values.view({values.numel()})});
  };
  for (const nn::NamedParameter& parameter : replicated_) {
    add_whole("param/" + parameter.path, replicated_masters_.of(parameter.variable));
  }
  if (replicated_gradients_ != nullptr) {
    for (const optim::Piece& piece : replicated_gradients_->pieces()) {
      for (const auto& [name, tensor] : replicated_optimizer_->state(piece)) {
        add_whole(name + "/" + piece.key, tensor);
      }
    }
  }
  return slices;
  // END SOLUTION
}

void ShardedModel::save_checkpoint(const io::CheckpointFolder& folder, std::int64_t step,
                                   std::map<std::string, std::string> metadata) {
  std::vector<io::StateSlice> slices;  // of this rank
  // SOLUTION 7.6: todo(slices, metadata)
  metadata["optimizer_steps"] = std::to_string(optimizer().optimizer().steps());
  slices = state_slices(/*with_replicated=*/group_->rank() == 0);
  // END SOLUTION
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
  // SOLUTION 7.6: todo(reader, optimizer_)
  const std::vector<io::StateSlice> slices = state_slices(/*with_replicated=*/true);
  const std::int64_t steps = io::integer_of(reader.metadata(), "optimizer_steps", folder);
  reader.check(slices, root_.named_parameters());
  reader.verify(group_->rank(), group_->size());
  group_->barrier({"load", Phase::checkpoint}).wait();  // every rank found it right
  reshard();
  reader.read(slices);
  optimizer().optimizer().set_steps(steps);
  if (replicated_optimizer_ != nullptr) replicated_optimizer_->set_steps(steps);
  return reader.metadata();
  // END SOLUTION
}

}  // namespace fsdp
