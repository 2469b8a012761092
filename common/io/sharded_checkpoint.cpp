#include "io/sharded_checkpoint.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/json_file.h"
#include "io/output_folder.h"
#include "io/safetensors_header.h"
#include "tensor/cast.h"

#include <fmt/format.h>
#include <zlib.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <set>
#include <span>
#include <string_view>

namespace fsdp::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What the metadata of a shard file says of its slices, as JSON under this key.
constexpr const char* kIndex = "unshard_slices";
constexpr const char* kWorldSize = "unshard_world_size";
constexpr const char* kSave = "unshard_save";
constexpr std::string_view kOf = "-of-";  // between a shard's number and that of all

fs::path file_name(int rank, int world_size) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", rank, world_size);
}

[[noreturn]] void reject(const fs::path& file, const std::string& what) {
  throw InputError(
      fmt::format("{}: {}; load another checkpoint, or save this one again", file.string(), what));
}

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t crc = 0) {
  return static_cast<std::uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t crc32_of(const Tensor& tensor) {
  const AllocationScope as_temp(MemoryKind::temp);
  const Tensor readable = on_host(tensor);
  return crc32_of({readable.raw(), readable.nbytes()});
}

bool is_shard(const std::string& name) {
  return name.starts_with("shard-") && name.find(kOf) != std::string::npos;
}

std::vector<fs::path> files_of(const fs::path& folder) {
  int world_size = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!is_shard(name)) continue;
    int found = 0;
    std::from_chars(name.data() + name.find(kOf) + kOf.size(), name.data() + name.size(), found);
    if (world_size != 0 && found != world_size) {
      reject(folder, fmt::format("holds shard files of {} and of {} ranks", world_size, found));
    }
    world_size = found;
  }
  std::vector<fs::path> files;
  files.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank)
    files.push_back(folder / file_name(rank, world_size));
  if (files.empty() && fs::exists(folder / kJoinedFile)) files.push_back(folder / kJoinedFile);
  if (files.empty()) reject(folder, "holds no shard-*-of-*.safetensors");
  return files;
}

json read_index(const fs::path& file, const std::string& text) {
  try {
    json index = parse_json(text);
    if (index.is_object()) return index;
  } catch (const JsonError& error) {
    if (!text.empty()) reject(file, fmt::format("its index of slices {}", error.what()));
  }
  reject(file, "has no index of its slices");
}

}  // namespace

bool holds_slices(const fs::path& folder) {
  const auto is_slices = [](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return is_shard(name) || name == kJoinedFile;
  };
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(), is_slices);
}

void write_slices(const fs::path& folder, int rank, int world_size,
                  const std::vector<StateSlice>& slices,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsWriter::Item> items;
  json index = json::object();
  for (const StateSlice& slice : slices) {
    items.push_back({slice.name, slice.values.dtype(), slice.values.shape()});
    index[slice.name] = {
        {"shape", slice.full_shape}, {"begin", slice.begin}, {"crc32", crc32_of(slice.values)}};
  }
  std::map<std::string, std::string> all = metadata;
  all[kIndex] = index.dump();
  all[kWorldSize] = std::to_string(world_size);
  all[kSave] = save_id(folder);
  all[kHeaderChecksum] = kNoChecksum;
  SafetensorsWriter writer(folder / file_name(rank, world_size), std::move(items), all);
  for (const StateSlice& slice : slices) writer.write(slice.values);
  writer.finish();
}

SliceReader::SliceReader(const fs::path& folder) : folder_(folder) {
  if (!fs::is_directory(folder)) {
    throw InputError(fmt::format(
        "{}: no such folder; a checkpoint is a folder step_N of shard files", folder.string()));
  }
  for (const fs::path& file : files_of(folder)) {
    files_.emplace_back(file);
    add_file(files_.size() - 1);
  }
  for (auto& [name, whole] : tensors_) check_cover(name, whole);
}

void SliceReader::add_file(std::size_t file) {
  const SafetensorsReader& reader = files_[file];
  std::map<std::string, std::string> metadata = reader.metadata();
  const json index = read_index(reader.path(), metadata[kIndex]);
  if (!metadata.contains(kHeaderChecksum)) reject(reader.path(), "its header has no checksum");
  metadata.erase(kIndex);
  metadata.erase(kHeaderChecksum);
  if (file == 0) metadata_ = metadata;
  if (metadata != metadata_) {
    reject(reader.path(),
           fmt::format("was not saved together with {}", files_[0].path().filename().string()));
  }
  for (const auto& [name, entry] : reader.entries()) {
    const auto found = index.find(name);
    const bool is_whole = found != index.end() && found->is_object() &&
                          found->value("shape", json()).is_array() &&
                          found->value("begin", json()).is_number_integer() &&
                          found->value("crc32", json()).is_number_unsigned();
    if (!is_whole)
      reject(reader.path(), fmt::format("its index lacks tensor \"{}\"", printable(name)));
    Shape shape;
    for (const json& size : found->at("shape")) {
      if (!size.is_number_unsigned()) reject(reader.path(), "its index has a shape of no numbers");
      shape.push_back(size.get<std::int64_t>());
    }
    const auto [known, is_new] = tensors_.emplace(name, Whole{shape, entry.stored, {}});
    Whole& whole = known->second;
    if (!is_new && (whole.shape != shape || whole.dtype != entry.stored)) {
      reject(reader.path(), fmt::format("disagrees with another shard about the shape of \"{}\"",
                                        printable(name)));
    }
    whole.parts.push_back({file, found->at("begin").get<std::int64_t>(), numel_of(entry.shape),
                           found->at("crc32").get<std::uint32_t>()});
  }
}

void SliceReader::check_cover(const std::string& name, Whole& whole) const {
  std::sort(whole.parts.begin(), whole.parts.end(),
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  std::int64_t end = 0;
  for (const Part& part : whole.parts) {
    if (part.begin != end) {
      reject(files_[part.file].path(),
             fmt::format("\"{}\" has a slice at element {} where {} was expected", printable(name),
                         part.begin, end));
    }
    end += part.numel;
  }
  if (end != numel_of(whole.shape)) {
    reject(folder_, fmt::format("\"{}\" has {} of {} elements", printable(name), end,
                                numel_of(whole.shape)));
  }
}

std::vector<std::string> SliceReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, whole] : tensors_) names.push_back(name);
  return names;
}

void SliceReader::check(const std::vector<StateSlice>& slices) const {
  for (const StateSlice& slice : slices) {
    const auto found = tensors_.find(slice.name);
    if (found == tensors_.end()) {
      throw InputError(fmt::format(
          "{}: tensor \"{}\" is missing: the checkpoint belongs to another model or optimizer",
          folder_.string(), slice.name));
    }
    const Whole& whole = found->second;
    if (whole.shape != slice.full_shape || whole.dtype != slice.values.dtype()) {
      throw InputError(
          fmt::format("{}: tensor \"{}\" is {} {}, but the model needs {} {}; use the "
                      "configuration it was saved with",
                      folder_.string(), slice.name, name_of(whole.dtype), to_string(whole.shape),
                      name_of(slice.values.dtype()), to_string(slice.full_shape)));
    }
  }
}

void SliceReader::check(const std::vector<StateSlice>& slices,
                        const std::vector<nn::NamedParameter>& parameters) const {
  check(slices);
  std::set<std::string> wanted, paths;
  for (const StateSlice& slice : slices) wanted.insert(slice.name);
  for (const nn::NamedParameter& parameter : parameters) paths.insert(parameter.path);
  for (const auto& [name, whole] : tensors_) {
    // A rank that holds no part of a parameter leaves its state to those that do.
    const std::string path = name.substr(name.find('/') + 1);
    const bool is_held = wanted.contains("param/" + path);
    if (paths.contains(path) && (!is_held || wanted.contains(name))) continue;
    throw InputError(
        fmt::format("{}: tensor \"{}\" would not be read: the checkpoint belongs to another model "
                    "or optimizer; use the configuration it was saved with",
                    folder_.string(), printable(name)));
  }
}

void SliceReader::check_shapes(const std::vector<nn::NamedParameter>& parameters) const {
  const auto refuse = [&](const std::string& path, const std::string& what) {
    throw InputError(fmt::format("{}: parameter \"{}\" {}; use the model it was saved with",
                                 folder_.string(), printable(path), what));
  };
  std::set<std::string> paths;
  for (const nn::NamedParameter& each : parameters) {
    paths.insert(each.path);
    const auto found = tensors_.find("param/" + each.path);
    if (found == tensors_.end()) refuse(each.path, "is missing");
    const Shape& stored = found->second.shape;
    if (stored == each.variable.shape()) continue;
    refuse(each.path, fmt::format("is {}, but the model needs {}", to_string(stored),
                                  to_string(each.variable.shape())));
  }
  for (const auto& [name, whole] : tensors_) {
    const std::string path = name.substr(name.find('/') + 1);
    if (!paths.contains(path)) refuse(path, "is none of the model's");
  }
}

template <class Body>
void SliceReader::for_each_piece(const std::string& name, DType dtype, const Part& part,
                                 Body body) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 16;  // elements
  const AllocationScope as_temp(MemoryKind::temp);
  const Tensor buffer = Tensor::empty({std::min(kMost, part.numel)}, dtype, kCpu);
  for (std::int64_t done = 0; done < part.numel; done += kMost) {
    const Tensor piece = buffer.narrow(0, 0, std::min(kMost, part.numel - done));
    files_[part.file].read_slice(name, done, piece);
    body(piece);
  }
}

void SliceReader::verify(int reader, int readers) const {
  for (const auto& [name, whole] : tensors_) {
    for (const Part& part : whole.parts) {
      if (static_cast<int>(part.file) % readers != reader) continue;
      std::uint32_t crc = 0;
      for_each_piece(name, whole.dtype, part, [&](const Tensor& piece) {
        crc = crc32_of({piece.raw(), piece.nbytes()}, crc);
      });
      if (crc != part.crc32) {
        reject(files_[part.file].path(),
               fmt::format("the data of \"{}\" is damaged", printable(name)));
      }
    }
  }
}

void SliceReader::read(const std::vector<StateSlice>& slices) const {
  check(slices);
  for (const StateSlice& slice : slices) {
    const std::int64_t end = slice.begin + slice.values.numel();
    for (const Part& part : tensors_.at(slice.name).parts) {
      const std::int64_t from = std::max(part.begin, slice.begin);
      const std::int64_t to = std::min(part.begin + part.numel, end);
      if (from >= to) continue;
      files_[part.file].read_slice(slice.name, from - part.begin,
                                   slice.values.narrow(0, from - slice.begin, to - from));
    }
  }
}

void SliceReader::join(const fs::path& file) const {
  std::vector<SafetensorsWriter::Item> items;
  json index = json::object();
  for (const auto& [name, whole] : tensors_) {
    std::uint32_t crc = 0;
    for (const Part& part : whole.parts) {
      const auto nbytes = part.numel * static_cast<z_off_t>(size_of(whole.dtype));
      crc = static_cast<std::uint32_t>(crc32_combine(crc, part.crc32, nbytes));
    }
    items.push_back({name, whole.dtype, whole.shape});
    index[name] = {{"shape", whole.shape}, {"begin", 0}, {"crc32", crc}};
  }
  std::map<std::string, std::string> all = metadata_;
  all[kIndex] = index.dump();
  all[kWorldSize] = "1";
  all[kHeaderChecksum] = kNoChecksum;
  SafetensorsWriter writer(file, std::move(items), all);
  for (const auto& [name, whole] : tensors_) {
    for (const Part& part : whole.parts) {
      for_each_piece(name, whole.dtype, part, [&](const Tensor& piece) { writer.write(piece); });
    }
  }
  writer.finish();
}

std::int64_t integer_of(const std::map<std::string, std::string>& metadata, const std::string& key,
                        const fs::path& folder) {
  const auto found = metadata.find(key);
  std::int64_t value = 0;
  if (found != metadata.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
  }
  reject(folder, fmt::format("the metadata has no whole number \"{}\"", key));
}

}  // namespace fsdp::io
