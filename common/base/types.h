/// @file
/// @ingroup base
/// The vocabulary of the library: element types, devices, shapes and the ten kinds of memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

/// Element type of a tensor. bfloat16 and float16 only store: operations compute in float32.
enum class DType { float32, float64, int32, int64, bfloat16, float16 };

std::size_t size_of(DType dtype);                         ///< Bytes of one element.
std::string_view name_of(DType dtype);                    ///< "float32", …
std::optional<DType> dtype_named(std::string_view name);  ///< The inverse; none: no such name.
std::vector<std::string> model_formats();  ///< Names of the dtypes that a model can compute in.
bool is_floating(DType dtype);
DType wide_of(
    DType dtype);  ///< in which operations compute: float32 for 16-bit floats, else itself

/// Where bytes live.
///   cpu   real memory, real kernels
///   meta  shape only: nothing is allocated or accounted
///   fake  accounted as if real, but without data; kernels only advance the virtual clock
///   cuda  the memory of a CUDA device, whose kernels run on streams; index: which device
///
/// cpu and fake have one device each, index 0. Their index 1 is the memory of the host beside a
/// device, counted apart (see Context::host()). Beside cuda it is cpu:1, which is pinned.
enum class DeviceType { cpu, meta, fake, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
  /// True if there are bytes, and kernels that run on them.
  bool has_data() const { return type == DeviceType::cpu || type == DeviceType::cuda; }
  /// True if code of the host may read and write the bytes.
  bool host_can_read() const { return type == DeviceType::cpu; }
  /// True for host memory that is counted apart.
  bool is_host() const {
    return (type == DeviceType::cpu || type == DeviceType::fake) && index == 1;
  }
};
std::string to_string(Device device);  ///< "cpu", "meta", "fake", "cuda:2"; "fake:1" for its host

inline constexpr Device kCpu{DeviceType::cpu, 0};
inline constexpr Device kMeta{DeviceType::meta, 0};
inline constexpr Device kFake{DeviceType::fake, 0};
inline constexpr Device kFakeHost{DeviceType::fake, 1};
inline constexpr Device kCpuHost{DeviceType::cpu, 1};  ///< beside cuda, or where tests ask for it
inline constexpr Device kCuda{DeviceType::cuda, 0};

/// Extent of every dimension, outermost first. An empty shape is a scalar.
using Shape = std::vector<std::int64_t>;
/// Product of the extents; 1 for a scalar.
/// @throws Error on a negative extent, or if the product does not fit 64 bits.
std::int64_t numel_of(const Shape& shape);
std::string to_string(const Shape& shape);  ///< "(3, 2)"

/// The memory tracker's kinds of bytes.
enum class MemoryKind {
  sharded_param,
  unsharded_param,
  sharded_grad,
  unsharded_grad,
  all_gather,
  reduce_scatter,
  activation,
  temp,
  optimizer,
  buffer,
};
inline constexpr int kMemoryKinds = 10;
std::string_view name_of(MemoryKind kind);        ///< "SHARDED_PARAM", … (reports)
std::string_view lower_name_of(MemoryKind kind);  ///< "sharded_param", … (trace lines)

/// What each thread of a rank has for its kernels beside their operands (ThreadPool).
inline constexpr std::size_t kScratchBytes = std::size_t{256} << 10;

}  // namespace fsdp
