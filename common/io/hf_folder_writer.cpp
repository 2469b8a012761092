#include "io/hf_folder_writer.h"

#include "base/check.h"
#include "io/file_io.h"
#include "io/output_folder.h"
#include "io/safetensors_index.h"

#include <utility>

namespace fsdp::io {

namespace fs = std::filesystem;

HfFolderWriter::HfFolderWriter(fs::path folder, const nn::TransformerConfig& config,
                               const std::vector<nn::NamedParameter>& parameters, HfExport how)
    : folder_(std::move(folder)), config_(config), how_(std::move(how)) {
  plan(parameters);
  temporary_ = begin_folder(folder_);
}

// A file is full when the next tensor does not fit. One that fits nowhere has a file of its own.
void HfFolderWriter::plan(const std::vector<nn::NamedParameter>& parameters) {
  std::uint64_t filled = 0;
  for (const nn::NamedParameter& parameter : parameters) {
    const Tensor& data = parameter.variable.data();
    const DType dtype = wide_of(data.dtype());  // masters are written
    const SafetensorsWriter::Item item{parameter.path, dtype, data.shape(), how_.dtype};
    const std::uint64_t most = how_.max_shard_size;
    const bool is_full = most > 0 && filled + item.nbytes() > most;
    if (files_.empty() || (is_full && filled > 0)) {
      files_.emplace_back();
      filled = 0;
    }
    filled += item.nbytes();
    files_.back().push_back(item);
  }
}

std::string HfFolderWriter::name_of_file(std::size_t file) const {
  if (files_.size() == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, files_.size());
}

void HfFolderWriter::write(const std::string& path, const Tensor& full) {
  FSDP_CHECK(file_ < files_.size() && path == files_[file_][item_].name,
             "{}: parameter {} is not the next one", folder_.string(), path);
  const Items& items = files_[file_];
  if (writer_ == nullptr) {
    // transformers refuses a file that does not say which framework's layout it has.
    writer_ =
        std::make_unique<SafetensorsWriter>(temporary_ / name_of_file(file_), items,
                                            std::map<std::string, std::string>{{"format", "pt"}});
  }
  writer_->write(full);
  if (++item_ < items.size()) return;
  writer_->finish();
  writer_ = nullptr;
  ++file_;
  item_ = 0;
}

std::vector<std::string> HfFolderWriter::publish() {
  FSDP_CHECK(file_ == files_.size(), "{}: parameter {} was not written", folder_.string(),
             files_[file_][item_].name);
  if (files_.size() > 1) write_index();
  write_text_atomically(temporary_ / "config.json", to_hf_config(config_, how_));
  std::vector<std::string> missing = copy_extras();
  publish_folder(temporary_, folder_);
  return missing;
}

void HfFolderWriter::write_index() const {
  SafetensorsIndex index;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    for (const SafetensorsWriter::Item& item : files_[file]) {
      index.weight_map[item.name] = name_of_file(file);
      index.total_size += item.nbytes();
      index.total_parameters += static_cast<std::uint64_t>(numel_of(item.shape));
    }
  }
  write_text_atomically(temporary_ / "model.safetensors.index.json", make_safetensors_index(index));
}

// A training may take weeks. What is missing by now is no reason to lose its result.
std::vector<std::string> HfFolderWriter::copy_extras() const {
  std::vector<std::string> missing;
  for (const std::string& name : how_.extras.files) {
    try {
      copy_synced(how_.extras.folder / name, temporary_ / name);
    } catch (const InputError& error) {
      remove_tree(temporary_ / name);
      missing.push_back(fmt::format("{}; {} is without it", error.what(), folder_.string()));
    }
  }
  return missing;
}

}  // namespace fsdp::io
