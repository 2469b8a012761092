/// @file
/// @ingroup io
/// The safetensors file format (https://huggingface.co/docs/safetensors): an 8-byte length, a JSON
/// header, the bytes. Read and written by the Python package of that name.
#pragma once

#include "base/check.h"
#include "io/file_io.h"
#include "io/half_floats.h"
#include "tensor/tensor.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::io {

/// The place of one tensor in a file.
struct SafetensorsEntry {
  DType dtype;  ///< of its values when they are read
  Shape shape;
  std::uint64_t begin;  ///< byte in the file
  std::uint64_t nbytes;
  DType stored;          ///< in the file: 16-bit floats are widened to float32 while they are read
  std::size_t file = 0;  ///< which one, if there are several
};

/// Reads a file, or the several files that are listed in `PATH.index.json`, as Hugging Face writes
/// large models. Opening it checks the whole header: lengths, overlaps, holes, dtypes, and that the
/// file has exactly the length it should. A corrupt length field never triggers an allocation.
/// Copies share the open files; concurrent reads are fine.
class SafetensorsReader {
 public:
  /// @throws InputError naming the file, what is wrong with it, and the remedy. Of several, each
  /// tensor must be in the file that the index names, and in no other.
  explicit SafetensorsReader(const std::filesystem::path& path);
  /// The file, or the index of several.
  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  /// Of several files: that of none.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return entries_.contains(name); }
  /// @throws InputError naming file and tensor if it is missing or has another dtype or shape.
  const SafetensorsEntry& require(const std::string& name, DType dtype, const Shape& shape) const;
  /// Reads the whole tensor into `out` (contiguous, same shape and dtype; or 16-bit floats, to
  /// which its values are rounded).
  void read(const std::string& name, const Tensor& out) const;
  /// Reads elements [begin, begin + out.numel()) of the flattened tensor, and nothing else. `out`
  /// is contiguous, of the same dtype (or 16-bit floats) and any shape.
  void read_slice(const std::string& name, std::int64_t begin, const Tensor& out) const;
  /// Whether two tensors are stored in the same way, with the same shape and bits. Holds a small
  /// part of each at a time.
  bool are_equal(const std::string& a, const std::string& b) const;

 private:
  const SafetensorsEntry& entry(const std::string& name) const;
  void read_rounded(const std::string& name, std::int64_t begin, const Tensor& out) const;
  void check_dtype(const std::string& name, const SafetensorsEntry& entry, DType dtype) const;
  const File& file_of(const SafetensorsEntry& entry) const { return *files_[entry.file]; }
  void open_all_of(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::vector<std::shared_ptr<const File>> files_;
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// A finite value has become an infinity in the 16 bits of a file.
class ValueTooLarge : public InputError {
 public:
  using InputError::InputError;
};

/// Writes a file tensor by tensor. All shapes are declared up front, and data follows in that
/// order. So one tensor in memory is enough. float32 can be stored as 16-bit floats, which are
/// rounded a few KiB at a time. finish() syncs the file to disk. A writer destroyed before that
/// removes its file.
class SafetensorsWriter {
 public:
  struct Item {
    std::string name;
    DType dtype;  ///< of the values that are given
    Shape shape;
    std::optional<DType> in_file = {};  ///< none: `dtype`

    DType stored() const { return in_file.value_or(dtype); }
    std::uint64_t nbytes() const;  ///< in the file
  };
  SafetensorsWriter(const std::filesystem::path& path, std::vector<Item> items,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  /// Writes data of the next item, in one or more contiguous parts, none beyond the item's end.
  /// @throws InputError naming the tensor, if a finite value is too large for the item's 16 bits.
  void write(const Tensor& part);
  /// @throws Error if data is missing.
  void finish();

 private:
  void skip_complete_items();
  void write_rounded(const Item& item, std::span<const float> values);

  File file_;
  std::vector<Item> items_;
  std::size_t item_ = 0;        // the one being written
  std::int64_t item_done_ = 0;  // elements of it
  bool finished_ = false;
};

}  // namespace fsdp::io
