#include "comm/scale_down.h"

namespace fsdp {
namespace {

template <class T>
void scale(std::byte* bytes, std::int64_t numel, T factor) {
  T* values = reinterpret_cast<T*>(bytes);
  for (std::int64_t i = 0; i < numel; ++i) values[i] *= factor;
}

}  // namespace

void scale_down(std::byte* values, std::int64_t numel, DType dtype, int world_size) {
  if (dtype == DType::float32) scale(values, numel, 1.0F / static_cast<float>(world_size));
  if (dtype == DType::float64) scale(values, numel, 1.0 / static_cast<double>(world_size));
}

}  // namespace fsdp
