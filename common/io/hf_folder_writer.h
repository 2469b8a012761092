/// @file
/// @ingroup io
/// Writes a model as a folder for Hugging Face's from_pretrained, parameter by parameter.
#pragma once

#include "io/hf_folder.h"
#include "io/safetensors.h"
#include "nn/transformer.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fsdp::io {

/// The folder appears with publish(), whole. Without it a temporary folder stays, which
/// output_folder.h clears. One parameter in memory is enough.
///
///     config.json
///     model.safetensors                        one file, or several:
///     model-00001-of-00002.safetensors
///     model-00002-of-00002.safetensors
///     model.safetensors.index.json             which tensor is in which
///     tokenizer.json, …                        what HfExport::extras names
class HfFolderWriter {
 public:
  /// Begins the folder for these parameters, in the order in which they will be written.
  /// @throws InputError if the folder is not ours to replace
  HfFolderWriter(std::filesystem::path folder, const nn::TransformerConfig& config,
                 const std::vector<nn::NamedParameter>& parameters, HfExport how = {});
  /// The next parameter, in full.
  /// @throws InputError naming it, if it has a value that is too large for the dtype
  void write(const std::string& path, const Tensor& full);
  /// Copies the extras, and publishes. @return which of them can no longer be read, one
  /// sentence each
  std::vector<std::string> publish();

 private:
  using Items = std::vector<SafetensorsWriter::Item>;

  void plan(const std::vector<nn::NamedParameter>& parameters);
  std::string name_of_file(std::size_t file) const;
  void write_index() const;
  std::vector<std::string> copy_extras() const;

  std::filesystem::path folder_, temporary_;
  nn::TransformerConfig config_;
  HfExport how_;
  std::vector<Items> files_;
  std::size_t file_ = 0, item_ = 0;            // to be written next
  std::unique_ptr<SafetensorsWriter> writer_;  // of `file_`; null before its first item
};

}  // namespace fsdp::io
