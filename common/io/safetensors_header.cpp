#include "io/safetensors_header.h"

#include "base/check.h"
#include "base/printable.h"
#include "io/json_file.h"

#include <zlib.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace fsdp::io {
namespace {

using nlohmann::json;

// The reference implementation refuses longer headers too.
constexpr std::uint64_t kMaxHeader = 100'000'000;

struct StoredType {
  const char* name;
  DType dtype;  // of its values when they are read
  DType stored = dtype;
};
constexpr StoredType kTypes[] = {
    {"F32", DType::float32},
    {"F64", DType::float64},
    {"I32", DType::int32},
    {"I64", DType::int64},
    {"BF16", DType::float32, DType::bfloat16},
    {"F16", DType::float32, DType::float16},
};

const StoredType& type_of(const SafetensorsWriter::Item& item) {
  const auto* found = std::ranges::find_if(kTypes, [&](const StoredType& type) {
    const bool is_given = type.dtype == item.dtype || type.stored == item.dtype;
    return is_given && type.stored == item.stored();
  });
  FSDP_CHECK(found != std::end(kTypes), "tensor \"{}\": {} cannot be stored as {}", item.name,
             name_of(item.dtype), name_of(item.stored()));
  return *found;
}

[[noreturn]] void damaged(const File& file, const std::string& what) {
  throw InputError(fmt::format("{}: not a complete safetensors file: {}; copy or save it again",
                               file.path().string(), what));
}

std::string read_header_text(const File& file, std::uint64_t nbytes) {
  if (nbytes < 8) damaged(file, fmt::format("it has {} bytes, the least is 8", nbytes));
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  // Compared before anything of that size is allocated: a damaged length can be astronomical.
  if (length > nbytes - 8) {
    damaged(file, fmt::format("its header should take {} bytes, the file has {}", length, nbytes));
  }
  if (length > kMaxHeader) damaged(file, fmt::format("a header of {} bytes is absurd", length));
  std::string text(length, '\0');
  file.read(8, std::as_writable_bytes(std::span(text)));
  return text;
}

json read_header(const File& file, const std::string& text) {
  try {
    json header = parse_json(text, 8);
    if (!header.is_object()) damaged(file, "its header is not a JSON object");
    return header;
  } catch (const JsonError& error) {
    damaged(file, fmt::format("its header {}", error.what()));
  }
}

// In what follows, `name` is printable.
std::uint64_t unsigned_of(const File& file, const std::string& name, const json& value,
                          const char* field) {
  if (!value.is_number_unsigned()) {
    damaged(file, fmt::format("tensor \"{}\": {} holds {}, not a whole number >= 0", name, field,
                              shown(value)));
  }
  return value.get<std::uint64_t>();
}

const json& field_of(const File& file, const std::string& name, const json& tensor,
                     const char* field) {
  if (!tensor.is_object() || tensor.size() != 3 || !tensor.contains(field)) {
    damaged(file,
            fmt::format("tensor \"{}\" must have exactly dtype, shape and data_offsets", name));
  }
  return tensor.at(field);
}

const StoredType& type_of_field(const File& file, const std::string& name, const json& value) {
  for (const StoredType& type : kTypes) {
    if (value == type.name) return type;
  }
  throw InputError(
      fmt::format("{}: tensor \"{}\" has dtype {}, which is not one of F32, F64, I32, I64, BF16, "
                  "F16; convert the file",
                  file.path().string(), name, shown(value)));
}

Shape shape_of_field(const File& file, const std::string& name, const json& value) {
  if (!value.is_array()) damaged(file, fmt::format("tensor \"{}\": shape is no list", name));
  constexpr std::size_t kMostDimensions = 32;
  if (value.size() > kMostDimensions) {
    damaged(file, fmt::format("tensor \"{}\": {} dimensions are absurd", name, value.size()));
  }
  Shape shape;
  std::int64_t nbytes = 8;  // of the widest element: no product of the shape overflows later
  for (const json& dimension : value) {
    const std::uint64_t size = unsigned_of(file, name, dimension, "shape");
    if (__builtin_mul_overflow(nbytes, std::max<std::uint64_t>(size, 1), &nbytes)) {
      damaged(file, fmt::format("tensor \"{}\": shape {} is absurd", name, shown(value)));
    }
    shape.push_back(static_cast<std::int64_t>(size));
  }
  return shape;
}

SafetensorsEntry parse_entry(const File& file, const std::string& name, const json& tensor,
                             std::uint64_t data_begin, std::uint64_t data_nbytes) {
  SafetensorsEntry entry;
  const StoredType& type = type_of_field(file, name, field_of(file, name, tensor, "dtype"));
  entry.dtype = type.dtype;
  entry.stored = type.stored;
  entry.shape = shape_of_field(file, name, field_of(file, name, tensor, "shape"));
  const json& offsets = field_of(file, name, tensor, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    damaged(file, fmt::format("tensor \"{}\": data_offsets must be [begin, end]", name));
  }
  const std::uint64_t begin = unsigned_of(file, name, offsets[0], "data_offsets");
  const std::uint64_t end = unsigned_of(file, name, offsets[1], "data_offsets");
  if (begin > end || end > data_nbytes) {
    damaged(file, fmt::format("tensor \"{}\" should lie at bytes [{}, {}), the file has {} of data",
                              name, begin, end, data_nbytes));
  }
  const std::uint64_t nbytes =
      static_cast<std::uint64_t>(numel_of(entry.shape)) * size_of(type.stored);
  if (nbytes != end - begin) {
    damaged(file, fmt::format("tensor \"{}\" {} {} needs {} bytes, its data_offsets give {}", name,
                              type.name, to_string(entry.shape), nbytes, end - begin));
  }
  entry.begin = data_begin + begin;
  entry.nbytes = nbytes;
  return entry;
}

void check_cover(const File& file, const std::map<std::string, SafetensorsEntry>& entries,
                 std::uint64_t data_begin, std::uint64_t file_nbytes) {
  std::vector<std::pair<const std::string*, const SafetensorsEntry*>> in_order;
  in_order.reserve(entries.size());
  for (const auto& [name, entry] : entries) in_order.emplace_back(&name, &entry);
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->nbytes) <
           std::pair(b.second->begin, b.second->nbytes);
  });
  std::uint64_t end = data_begin;
  for (const auto& [name, entry] : in_order) {
    if (entry->begin < end)
      damaged(file, fmt::format("tensor \"{}\" overlaps another", printable(*name)));
    if (entry->begin > end) {
      damaged(file, fmt::format("{} bytes before tensor \"{}\" belong to nothing",
                                entry->begin - end, printable(*name)));
    }
    end = entry->begin + entry->nbytes;
  }
  if (end != file_nbytes) {
    damaged(file, fmt::format("its tensors end at byte {}, the file at byte {}", end, file_nbytes));
  }
}

// Where the digits of the checksum are in the text of a header that holds one. A quote inside a
// name or value is escaped, so no other place reads like this.
std::size_t checksum_place(const std::string& text) {
  const std::string key = fmt::format(R"("{}":")", kHeaderChecksum);
  const std::size_t at = text.find(key);
  return at == std::string::npos ? at : at + key.size();
}

std::string checksum_of(std::string text) {
  const std::string zeros = kNoChecksum;
  text.replace(checksum_place(text), zeros.size(), zeros);
  return fmt::format("{:08x}",
                     crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

void check_checksum(const File& file, const std::string& text, const SafetensorsHeader& header) {
  const auto found = header.metadata.find(kHeaderChecksum);
  if (found == header.metadata.end()) return;
  const bool is_plain = checksum_place(text) != std::string::npos && found->second.size() == 8;
  if (!is_plain || checksum_of(text) != found->second) {
    damaged(file, "its header does not have the checksum that was written with it");
  }
}

}  // namespace

std::uint64_t SafetensorsWriter::Item::nbytes() const {
  return static_cast<std::uint64_t>(numel_of(shape)) * size_of(type_of(*this).stored);
}

SafetensorsHeader parse_safetensors_header(const File& file) {
  const std::uint64_t file_nbytes = file.nbytes();
  const std::string text = read_header_text(file, file_nbytes);
  const json parsed = read_header(file, text);
  const std::uint64_t data_begin = 8 + text.size();
  SafetensorsHeader header;
  for (const auto& [name, value] : parsed.items()) {
    if (name != "__metadata__") {
      header.entries.emplace(
          name, parse_entry(file, printable(name), value, data_begin, file_nbytes - data_begin));
      continue;
    }
    if (!value.is_object()) damaged(file, "__metadata__ is not a JSON object");
    for (const auto& [key, entry] : value.items()) {
      if (!entry.is_string()) {
        damaged(file, fmt::format("__metadata__ \"{}\" is not a string", printable(key)));
      }
      header.metadata.emplace(key, entry.get<std::string>());
    }
  }
  check_checksum(file, text, header);
  check_cover(file, header.entries, data_begin, file_nbytes);
  return header;
}

std::string make_safetensors_header(const std::vector<SafetensorsWriter::Item>& items,
                                    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;
  for (const SafetensorsWriter::Item& item : items) {
    const StoredType& type = type_of(item);
    const std::uint64_t begin = end;
    end += item.nbytes();
    header[item.name] = {
        {"dtype", type.name}, {"shape", item.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  if (metadata.contains(kHeaderChecksum)) {
    const std::string checksum = checksum_of(text);
    text.replace(checksum_place(text), checksum.size(), checksum);
  }
  return text;
}

}  // namespace fsdp::io
