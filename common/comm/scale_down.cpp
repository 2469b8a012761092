#include "comm/scale_down.h"

#include "tensor/dispatch.h"

namespace fsdp {

void scale_down(std::byte* values, std::int64_t numel, DType dtype, int world_size) {
  if (!is_floating(dtype)) return;
  dispatch_floating(dtype, [=]<class T>(T) {
    T* const typed = reinterpret_cast<T*>(values);
    const Wide<T> factor = 1 / static_cast<Wide<T>>(world_size);
    for (std::int64_t i = 0; i < numel; ++i) {
      typed[i] = static_cast<T>(static_cast<Wide<T>>(typed[i]) * factor);
    }
  });
}

}  // namespace fsdp
