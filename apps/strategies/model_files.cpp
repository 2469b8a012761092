#include "strategies/model_files.h"

#include "io/hf_folder_writer.h"
#include "io/output_folder.h"
#include "nn/lora.h"
#include "tensor/cast.h"

#include <utility>

namespace fsdp::strategies {
namespace {

std::vector<io::StateSlice> all_of(const std::vector<HeldSlice>& held) {
  std::vector<io::StateSlice> slices;
  slices.reserve(held.size());
  for (const HeldSlice& each : held) slices.push_back(each.slice);
  return slices;
}

std::vector<io::StateSlice> written_of(const std::vector<HeldSlice>& held) {
  std::vector<io::StateSlice> slices;
  for (const HeldSlice& each : held) {
    if (each.is_written) slices.push_back(each.slice);
  }
  return slices;
}

io::SliceReader open_checkpoint(const std::filesystem::path& folder) {
  return io::or_way_on(folder, [&] { return io::SliceReader(folder); });
}

// That the checkpoint is not damaged; then its values.
void read_all(TrainedModel& trained, const io::SliceReader& reader,
              const std::vector<io::StateSlice>& slices) {
  const ProcessGroup* group = trained.group();
  io::or_way_on(reader.folder(), [&] {
    reader.verify(group == nullptr ? 0 : group->rank(), group == nullptr ? 1 : group->size());
  });
  trained.barrier("load");  // every rank found it right
  trained.about_to_change();
  reader.read(slices);
  trained.changed();
}

// This rank's part of a checkpoint.
void write_held(TrainedModel& trained, const std::filesystem::path& folder, Metadata metadata) {
  metadata["optimizer_steps"] = std::to_string(trained.optimizer_steps());
  if (trained.writer() < 0) return;
  io::write_slices(folder, trained.writer(), trained.writers(), written_of(trained.state()),
                   metadata);
}

// All ranks' parts, and then one file of them.
void write_joined(TrainedModel& trained, const std::filesystem::path& folder, Metadata metadata) {
  const std::filesystem::path parts = folder / "parts";
  if (trained.is_first()) std::filesystem::create_directory(parts);
  trained.barrier("save_full");  // the folder is there
  write_held(trained, parts, std::move(metadata));
  trained.barrier("save_full");  // every file is written and synced
  if (!trained.is_first()) return;
  io::SliceReader(parts).join(folder / io::kJoinedFile);
  std::filesystem::remove_all(parts);
}

/// LoRA's, by path, on rank 0; they are small.
std::map<std::string, Tensor> full_adapters(TrainedModel& trained) {
  std::map<std::string, Tensor> adapters;
  const std::vector<nn::NamedParameter> all = trained.parameters();
  if (nn::without_lora(all).size() == all.size()) return adapters;
  trained.for_each_full_parameter([&](const std::string& path, const Tensor& full) {
    if (!trained.is_first() || !is_lora(path)) return;
    const Tensor copy = Tensor::empty(full.shape(), full.dtype(), full.device());
    ops::copy(copy, full);
    adapters[path] = copy;
  });
  return adapters;
}

}  // namespace

void save_checkpoint(TrainedModel& trained, const io::CheckpointFolder& folder, std::int64_t step,
                     Metadata metadata) {
  if (trained.is_first()) folder.begin(step);
  trained.barrier("save");  // the folder is there
  write_held(trained, folder.temporary(step), std::move(metadata));
  trained.barrier("save");  // every file is written and synced
  if (trained.is_first()) folder.publish(step);
  trained.barrier("save");  // it can be loaded
}

Metadata load_checkpoint(TrainedModel& trained, const std::filesystem::path& folder) {
  const io::SliceReader reader = open_checkpoint(folder);
  const std::vector<HeldSlice> held = trained.state();
  const std::vector<io::StateSlice> slices = all_of(held);
  reader.check(slices);
  reader.check(written_of(held), trained.parameters());
  const std::int64_t steps = io::integer_of(reader.metadata(), "optimizer_steps", folder);
  read_all(trained, reader, slices);
  trained.set_optimizer_steps(steps);
  return reader.metadata();
}

Metadata load_parameters(TrainedModel& trained, const std::filesystem::path& folder) {
  const io::SliceReader reader = open_checkpoint(folder);
  const std::vector<io::StateSlice> slices = all_of(trained.parameter_state());
  reader.check(slices);
  read_all(trained, reader, slices);
  return reader.metadata();
}

void load_full(TrainedModel& trained, const std::filesystem::path& folder) {
  const io::SafetensorsReader reader = io::open_hf_weights(folder);
  io::check_hf_parameters(reader, nn::without_lora(trained.parameters()));
  trained.barrier("load_full");  // every rank found it right
  trained.about_to_change();
  for (const io::StateSlice& slice : all_of(trained.parameter_state())) {
    const std::string path = slice.name.substr(slice.name.find('/') + 1);
    if (!is_lora(path)) reader.read_slice(path, slice.begin, slice.values);
  }
  trained.changed();
}

std::vector<std::string> save_full(TrainedModel& trained, const std::filesystem::path& folder,
                                   io::HfExport how, std::optional<Metadata> state) {
  const AllocationScope as_temp(MemoryKind::temp);
  const double scale = trained.recipe().lora.scale();
  const std::map<std::string, Tensor> adapters = full_adapters(trained);
  const auto to_export = [&](const std::string& path, const Tensor& full) {
    const std::string linear = path.substr(0, path.rfind('.'));
    const auto a = adapters.find(linear + ".lora_A.weight");
    if (a == adapters.end()) return cast(full, wide_of(full.dtype()));
    return nn::merge_lora(full, a->second, adapters.at(linear + ".lora_B.weight"), scale);
  };
  std::optional<io::HfFolderWriter> writer;
  std::vector<std::string> missing;
  if (trained.is_first()) {
    writer.emplace(folder, trained.model().config(), nn::without_lora(trained.parameters()),
                   std::move(how));
  }
  trained.for_each_full_parameter([&](const std::string& path, const Tensor& full) {
    if (writer && !is_lora(path)) writer->write(path, to_export(path, full));
  });
  if (state) write_joined(trained, io::temporary_of(folder), std::move(*state));
  if (writer) missing = writer->publish();
  trained.barrier("save_full");  // the folder is there
  return missing;
}

}  // namespace fsdp::strategies
