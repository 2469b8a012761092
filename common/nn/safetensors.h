/// @file
/// @ingroup nn
/// The safetensors file format (https://huggingface.co/docs/safetensors): an 8-byte length, a JSON
/// header, the bytes. Read and written by the Python package of that name.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace fsdp::nn {

/// Where one tensor lies in a file.
struct SafetensorsEntry {
  DType dtype;
  Shape shape;
  std::uint64_t begin;  ///< byte in the file
  std::uint64_t nbytes;
};

/// Reads a file. The header is checked completely on opening: lengths, overlaps, holes, dtypes,
/// and that the file is as long as it says.
class SafetensorsReader {
 public:
  /// @throws InputError naming the file, what is wrong with it, and the remedy.
  explicit SafetensorsReader(std::filesystem::path path);
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return entries_.count(name) != 0; }
  /// Reads the whole tensor into `out` (contiguous, same shape and dtype).
  void read(const std::string& name, const Tensor& out) const;
  /// Reads elements [begin, begin + out.numel()) of the flattened tensor, and nothing else.
  void read_slice(const std::string& name, std::int64_t begin, const Tensor& out) const;

 private:
  std::filesystem::path path_;
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a file tensor by tensor: all shapes are said first, then data is given in that order, so no
/// two tensors need be in memory at once. finish() syncs it to disk.
class SafetensorsWriter {
 public:
  struct Item {
    std::string name;
    DType dtype;
    Shape shape;
  };
  SafetensorsWriter(std::filesystem::path path, std::vector<Item> items,
                    std::map<std::string, std::string> metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  /// The data of the next item; may come in several contiguous parts.
  void write(const Tensor& part);
  /// @throws Error if data is missing.
  void finish();

 private:
  std::filesystem::path path_;
  std::vector<Item> items_;
  std::uint64_t expected_ = 0;
  std::uint64_t written_ = 0;
  int file_ = -1;
};

}  // namespace fsdp::nn
