#include "base/types.h"

#include "base/check.h"

namespace fsdp {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float64:
    case DType::int64:
      return 8;
    case DType::bfloat16:
    case DType::float16:
      return 2;
  }
  fail("unknown element type number {}", static_cast<int>(dtype));
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float16:
      return "float16";
  }
  fail("unknown element type number {}", static_cast<int>(dtype));
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const DType dtype : {DType::float32, DType::float64, DType::int32, DType::int64,
                            DType::bfloat16, DType::float16}) {
    if (name == name_of(dtype)) return dtype;
  }
  return {};
}

std::vector<std::string> model_formats() {
  std::vector<std::string> names;
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    names.emplace_back(name_of(dtype));
  }
  return names;
}

bool is_floating(DType dtype) { return dtype != DType::int32 && dtype != DType::int64; }

DType wide_of(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16 ? DType::float32 : dtype;
}

namespace {
std::string_view name_of(DeviceType type) {
  switch (type) {
    case DeviceType::cpu:
      return "cpu";
    case DeviceType::meta:
      return "meta";
    case DeviceType::fake:
      return "fake";
    case DeviceType::cuda:
      return "cuda";
  }
  fail("unknown device type number {}", static_cast<int>(type));
}
}  // namespace

std::string to_string(Device device) {
  std::string text{name_of(device.type)};
  if (device.index != 0) text += fmt::format(":{}", device.index);
  return text;
}

std::int64_t numel_of(const Shape& shape) {
  std::int64_t numel = 1;
  for (const std::int64_t extent : shape) {
    FSDP_CHECK(extent >= 0, "a shape cannot have a negative extent: {}", to_string(shape));
    FSDP_CHECK(!__builtin_mul_overflow(numel, extent, &numel),
               "a shape cannot have more elements than a 64-bit number holds: {}",
               to_string(shape));
  }
  return numel;
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + ")";
}

namespace {
struct KindNames {
  std::string_view upper;
  std::string_view lower;
};
constexpr std::array<KindNames, kMemoryKinds> kKindNames{{
    {"SHARDED_PARAM", "sharded_param"},
    {"UNSHARDED_PARAM", "unsharded_param"},
    {"SHARDED_GRAD", "sharded_grad"},
    {"UNSHARDED_GRAD", "unsharded_grad"},
    {"ALL_GATHER", "all_gather"},
    {"REDUCE_SCATTER", "reduce_scatter"},
    {"ACTIVATION", "activation"},
    {"TEMP", "temp"},
    {"OPTIMIZER", "optimizer"},
    {"BUFFER", "buffer"},
}};
}  // namespace

std::string_view name_of(MemoryKind kind) {
  return kKindNames.at(static_cast<std::size_t>(kind)).upper;
}

std::string_view lower_name_of(MemoryKind kind) {
  return kKindNames.at(static_cast<std::size_t>(kind)).lower;
}

}  // namespace fsdp
