#include "support/cuda_on_host/block.h"
#include "support/cuda_on_host/include/mma.h"
#include "support/cuda_on_host/misuse.h"

#include <cmath>
#include <cstring>

namespace cuda_on_host {
namespace {

constexpr std::uint32_t kWarp = 0xffffffffU;

}  // namespace

void multiply_tiles(const float* a, const float* b, const float* c, float* d, Site site) {
  struct Parts {
    const float *a, *b;
  };
  static_assert(sizeof(Parts) <= sizeof(Slot));
  const Parts mine = {a, b};
  const Slot* slots = warp_barrier(kWarp, &mine, sizeof mine, site);
  Parts parts[32];
  for (int i = 0; i < 32; ++i) std::memcpy(&parts[i], slots[i].bytes, sizeof(Parts));
  const auto element = [](const float* const part, int at) { return part[at % 8]; };
  float result[8];
  for (int i = 0; i < 8; ++i) {
    const int row = (lane() * 8 + i) / 16, column = (lane() * 8 + i) % 16;
    result[i] = c[i];
    for (int k = 0; k < 16; ++k) {
      const int at_a = row * 16 + k, at_b = k * 16 + column;
      result[i] =
          std::fma(element(parts[at_a / 8].a, at_a), element(parts[at_b / 8].b, at_b), result[i]);
    }
  }
  // The parts lie on the lanes' stacks: no lane goes on before all have read them.
  warp_barrier(kWarp, nullptr, 0, site);
  std::copy(result, result + 8, d);
}

void check_tile(const void* address, std::size_t element_nbytes, unsigned stride, Site site) {
  warp_barrier(kWarp, nullptr, 0, site);
  std::string wrong;
  if (reinterpret_cast<Address>(address) % 32 != 0) {
    wrong = fmt::format("{} at {}:{} has the address {}, which is no multiple of 32", site.function,
                        site.file, site.line, address);
  } else if (stride % (16 / element_nbytes) != 0) {
    wrong = fmt::format("{} at {}:{} has a stride of {} elements, which is no multiple of {}",
                        site.function, site.file, site.line, stride, 16 / element_nbytes);
  }
  if (!wrong.empty()) running_grid()->fail_thread(std::move(wrong));
}

}  // namespace cuda_on_host
