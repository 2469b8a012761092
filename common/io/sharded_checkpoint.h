/// @file
/// @ingroup io
/// Checkpoints in pieces: every rank writes its own slices, and any number of ranks reads them
/// back.
#pragma once

#include "io/safetensors.h"
#include "nn/module.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace fsdp::io {

/// One rank's part of one tensor of the training state.
struct StateSlice {
  std::string name;        ///< "param/model.norm.weight", "exp_avg/model.norm.weight", …
  Shape full_shape;        ///< of the whole tensor
  std::int64_t begin = 0;  ///< first element of the flattened whole
  Tensor values;           ///< (length): a view of the live state, written or read in place
};

/// Writes the slices of rank `rank` of `world_size` to `folder/shard-RRRRR-of-WWWWW.safetensors`,
/// synced. Each slice is one tensor. The file's metadata holds its full shape, its begin, and its
/// checksum (CRC-32). The header has a checksum too, so every byte has one. `metadata` is added,
/// and the id of the save, if begin_folder() made the folder.
void write_slices(const std::filesystem::path& folder, int rank, int world_size,
                  const std::vector<StateSlice>& slices,
                  const std::map<std::string, std::string>& metadata = {});

/// The name of a file that holds what all shard files of a folder hold.
inline constexpr const char* kJoinedFile = "optimizer.safetensors";

/// Whether a folder holds shard files, or a joined file.
bool holds_slices(const std::filesystem::path& folder);

/// All shard files of a folder, written at any W, or else its joined file. Opening it reads only
/// the headers, and verifies them.
class SliceReader {
 public:
  /// Checks that all files of the set exist and agree in shapes and metadata, and that they cover
  /// every tensor completely and once. @throws InputError naming file, tensor and remedy.
  explicit SliceReader(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  int written_by() const { return static_cast<int>(files_.size()); }  ///< W when it was written
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::string> names() const;

  /// Throws InputError if any slice is missing or has another shape or dtype. So you can refuse a
  /// load before anything has changed.
  void check(const std::vector<StateSlice>& slices) const;
  /// The same, and throws InputError if a tensor would be left unread. Such a tensor belongs to
  /// none of these parameters (all of the model's). Or it belongs to one with slices, but is not
  /// among them (the state of another optimizer).
  void check(const std::vector<StateSlice>& slices,
             const std::vector<nn::NamedParameter>& parameters) const;
  /// Throws InputError naming the first parameter that is missing, has another shape, or is none of
  /// these (all of the model's). It is the same on every rank.
  void check_shapes(const std::vector<nn::NamedParameter>& parameters) const;
  /// Reads the data of files number `reader`, `reader + readers`, … once and checks their
  /// checksums. So R readers together verify the whole folder.
  /// @throws InputError naming the damaged file and tensor.
  void verify(int reader, int readers) const;
  /// Reads the slices into their values, each from as many files as needed.
  void read(const std::vector<StateSlice>& slices) const;
  /// Writes one file with all tensors, each in its own shape, synced. Holds 256 KiB of them at a
  /// time. What is damaged stays so, and is found when it is read.
  void join(const std::filesystem::path& file) const;

 private:
  struct Part {
    std::size_t file;
    std::int64_t begin;
    std::int64_t numel;
    std::uint32_t crc32;
  };
  struct Whole {
    Shape shape;
    DType dtype;
    std::vector<Part> parts;  // in order, without gap or overlap
  };
  /// body(piece), for all elements of a part in order.
  template <class Body>
  void for_each_piece(const std::string& name, DType dtype, const Part& part, Body body) const;
  void add_file(std::size_t file);
  void check_cover(const std::string& name, Whole& whole) const;

  std::filesystem::path folder_;
  std::vector<SafetensorsReader> files_;
  std::map<std::string, Whole> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// The whole number under `key`. @throws InputError naming the folder and the key if there is none.
std::int64_t integer_of(const std::map<std::string, std::string>& metadata, const std::string& key,
                        const std::filesystem::path& folder);

}  // namespace fsdp::io
