#include "io/safetensors.h"

#include "base/printable.h"
#include "io/safetensors_header.h"
#include "io/safetensors_index.h"
#include "tensor/cast.h"
#include "tensor/ops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

namespace fsdp::io {

namespace fs = std::filesystem;

namespace {

bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

// The format is little-endian, and tensors are copied as they lie in memory.
static_assert(std::endian::native == std::endian::little);

SafetensorsReader::SafetensorsReader(const fs::path& path) : path_(path) {
  const fs::path index = path.string() + ".index.json";
  if (file_exists(index)) {
    if (file_exists(path)) {
      throw InputError(fmt::format("{}: is there, and {} too; remove the one that is not meant",
                                   path.string(), index.string()));
    }
    path_ = index;
    open_all_of(index);
    return;
  }
  files_.push_back(std::make_shared<const File>(File::open_to_read(path)));
  SafetensorsHeader header = parse_safetensors_header(*files_[0]);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
}

void SafetensorsReader::open_all_of(const fs::path& index) {
  const std::map<std::string, std::string> weight_map = read_safetensors_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, name] : weight_map) names.insert(name);
  for (const std::string& name : names) {
    const fs::path path = index.parent_path() / name;
    if (!file_exists(path)) {
      throw InputError(
          fmt::format("{}: lists file \"{}\", which is not there; copy all files of "
                      "the model",
                      index.string(), printable(name)));
    }
    files_.push_back(std::make_shared<const File>(File::open_to_read(path)));
    for (auto& [tensor, entry] : parse_safetensors_header(*files_.back()).entries) {
      const auto listed = weight_map.find(tensor);
      if (listed == weight_map.end() || listed->second != name) {
        throw InputError(
            fmt::format("{}: holds tensor \"{}\", which {} lists {}; copy all files of "
                        "the model again",
                        path.string(), printable(tensor), index.string(),
                        listed == weight_map.end() ? "nowhere" : "in another file"));
      }
      entry.file = files_.size() - 1;
      entries_.emplace(tensor, entry);
    }
  }
  for (const auto& [tensor, name] : weight_map) {
    if (entries_.contains(tensor)) continue;
    throw InputError(
        fmt::format("{}: lists tensor \"{}\" in file \"{}\", which does not hold it; "
                    "copy all files of the model again",
                    index.string(), printable(tensor), printable(name)));
  }
}

const SafetensorsEntry& SafetensorsReader::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    throw InputError(fmt::format("{}: holds no tensor \"{}\"; it was saved from another model",
                                 path().string(), printable(name)));
  }
  return found->second;
}

void SafetensorsReader::check_dtype(const std::string& name, const SafetensorsEntry& entry,
                                    DType dtype) const {
  const bool is_narrower =
      entry.dtype == DType::float32 && is_floating(dtype) && size_of(dtype) == 2;
  if (entry.dtype != dtype && !is_narrower) {
    throw InputError(fmt::format("{}: tensor \"{}\" is {}, but {} is needed; convert the file",
                                 file_of(entry).path().string(), printable(name),
                                 name_of(entry.dtype), name_of(dtype)));
  }
}

const SafetensorsEntry& SafetensorsReader::require(const std::string& name, DType dtype,
                                                   const Shape& shape) const {
  const SafetensorsEntry& found = entry(name);
  if (found.shape != shape) {
    throw InputError(fmt::format(
        "{}: tensor \"{}\" has shape {}, but the model's has {}; it was saved from another model",
        file_of(found).path().string(), printable(name), to_string(found.shape), to_string(shape)));
  }
  check_dtype(name, found, dtype);
  return found;
}

void SafetensorsReader::read(const std::string& name, const Tensor& out) const {
  require(name, out.dtype(), out.shape());
  read_slice(name, 0, out);
}

void SafetensorsReader::read_slice(const std::string& name, std::int64_t begin,
                                   const Tensor& out) const {
  const SafetensorsEntry& from = entry(name);
  check_dtype(name, from, out.dtype());
  FSDP_CHECK(out.is_contiguous(), "{}: tensor \"{}\" must be read into contiguous memory",
             path().string(), name);
  const std::int64_t numel = numel_of(from.shape);
  FSDP_CHECK(begin >= 0 && begin <= numel && out.numel() <= numel - begin,
             "{}: elements [{}, {}) of tensor \"{}\" were requested, but it has {}",
             path().string(), begin, begin + out.numel(), name, numel);
  if (out.numel() == 0) return;
  FSDP_CHECK(out.device().has_data(), "{}: tensor \"{}\" cannot be read to {}, which holds no data",
             path().string(), name, to_string(out.device()));
  if (!out.device().host_can_read()) {
    const AllocationScope as_temp(MemoryKind::temp);
    const Tensor readable = Tensor::empty(out.shape(), out.dtype(), kCpu);
    read_slice(name, begin, readable);
    return ops::copy(out, readable);
  }
  if (out.dtype() != from.dtype && out.dtype() != from.stored) {
    return read_rounded(name, begin, out);
  }
  const std::size_t width = from.nbytes / static_cast<std::uint64_t>(numel);
  const std::span<std::byte> bytes(out.raw(), out.nbytes());
  const std::size_t nbytes = static_cast<std::size_t>(out.numel()) * width;
  file_of(from).read(from.begin + static_cast<std::uint64_t>(begin) * width, bytes.last(nbytes));
  if (from.stored == out.dtype()) return;
  widen_in_place({out.data<float>(), static_cast<std::size_t>(out.numel())}, from.stored);
}

void SafetensorsReader::read_rounded(const std::string& name, std::int64_t begin,
                                     const Tensor& out) const {
  constexpr std::int64_t kChunk = std::int64_t{1} << 16;
  const AllocationScope as_temp(MemoryKind::temp);
  const Tensor flat = out.view({out.numel()});
  const Tensor wide = Tensor::empty({std::min(kChunk, out.numel())}, DType::float32, kCpu);
  for (std::int64_t done = 0; done < out.numel(); done += kChunk) {
    const Tensor piece = wide.narrow(0, 0, std::min(kChunk, out.numel() - done));
    read_slice(name, begin + done, piece);
    ops::copy(flat.narrow(0, done, piece.numel()), piece);
  }
}

bool SafetensorsReader::are_equal(const std::string& a, const std::string& b) const {
  const SafetensorsEntry& left = entry(a);
  const SafetensorsEntry& right = entry(b);
  if (left.dtype != right.dtype || left.stored != right.stored || left.shape != right.shape) {
    return false;
  }
  std::array<std::vector<std::byte>, 2> parts;
  for (std::uint64_t begin = 0; begin < left.nbytes; begin += parts[0].size()) {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 20;
    for (auto& part : parts) part.resize(std::min(kMost, left.nbytes - begin));
    file_of(left).read(left.begin + begin, parts[0]);
    file_of(right).read(right.begin + begin, parts[1]);
    if (parts[0] != parts[1]) return false;
  }
  return true;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<Item> items,
                                     const std::map<std::string, std::string>& metadata)
    : file_(File::create(path)), items_(std::move(items)) {
  std::set<std::string> names;
  for (const Item& item : items_) {
    FSDP_CHECK(item.name != "__metadata__" && names.insert(item.name).second,
               "{}: cannot hold a tensor named \"{}\" (a second time)", path.string(), item.name);
  }
  const std::string header = make_safetensors_header(items_, metadata);
  const std::uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(std::as_bytes(std::span(header)));
  skip_complete_items();
}

SafetensorsWriter::~SafetensorsWriter() {
  std::error_code ignored;
  if (!finished_) std::filesystem::remove(file_.path(), ignored);
}

void SafetensorsWriter::skip_complete_items() {
  while (item_ < items_.size() && item_done_ == numel_of(items_[item_].shape)) {
    ++item_;
    item_done_ = 0;
  }
}

void SafetensorsWriter::write(const Tensor& part) {
  if (part.numel() == 0) return;
  FSDP_CHECK(item_ < items_.size(), "{}: all {} tensors are already written", file_.path().string(),
             items_.size());
  const Item& item = items_[item_];
  const std::int64_t left = numel_of(item.shape) - item_done_;
  FSDP_CHECK(part.dtype() == item.dtype && part.is_contiguous() && part.numel() <= left,
             "{}: tensor \"{}\" {} {} still lacks {} elements; got {} of {} ({}contiguous)",
             file_.path().string(), item.name, name_of(item.dtype), to_string(item.shape), left,
             part.numel(), name_of(part.dtype()), part.is_contiguous() ? "" : "not ");
  const AllocationScope as_temp(MemoryKind::temp);
  const Tensor readable = on_host(part);
  if (item.stored() == item.dtype) {
    file_.write({readable.raw(), readable.nbytes()});
  } else {
    write_rounded(item, {readable.data<float>(), static_cast<std::size_t>(readable.numel())});
  }
  item_done_ += part.numel();
  skip_complete_items();
}

void SafetensorsWriter::write_rounded(const Item& item, std::span<const float> values) {
  std::array<std::uint16_t, 8192> buffer;
  while (!values.empty()) {
    const std::span piece = values.first(std::min(values.size(), buffer.size()));
    const std::span rounded = std::span(buffer).first(piece.size());
    if (const float* beyond = round_to(rounded, piece, item.stored())) {
      throw ValueTooLarge(
          fmt::format("tensor \"{}\" holds {}, but the largest {} is {}; store it as float32{}",
                      item.name, *beyond, name_of(item.stored()), largest_of(item.stored()),
                      item.stored() == DType::float16 ? " or bfloat16" : ""));
    }
    file_.write(std::as_bytes(rounded));
    values = values.subspan(piece.size());
  }
}

void SafetensorsWriter::finish() {
  FSDP_CHECK(item_ == items_.size(), "{}: tensor \"{}\" lacks {} of its elements",
             file_.path().string(), items_[item_].name, numel_of(items_[item_].shape) - item_done_);
  file_.sync();
  finished_ = true;
}

}  // namespace fsdp::io
