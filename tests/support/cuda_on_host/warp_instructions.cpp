// What lanes exchange here is no access of the kernel; what they load and copy is announced.
#include "support/cuda_on_host/include/cuda_on_host/warp_instructions.h"

#include "support/cuda_on_host/block.h"
#include "support/cuda_on_host/include/cuda_bf16.h"
#include "support/cuda_on_host/include/cuda_fp16.h"
#include "support/cuda_on_host/misuse.h"

#include <cmath>
#include <cstring>

namespace cuda_on_host {
namespace {

constexpr std::uint32_t kWarp = 0xffffffffU;

void announce(const void* address, std::size_t nbytes, bool write) {
  check_alignment(address, nbytes);
  running_grid()->access(address, nbytes, write, false);
}

template <class T>
float half_of(unsigned pair, int n) {
  T value;
  value.bits = static_cast<unsigned short>(pair >> (16 * n));
  return value;
}

}  // namespace

void load_tiles(unsigned (&tiles)[4], const void* row, bool transposed, Site site) {
  announce(row, 16, false);
  const Slot* rows = warp_barrier(kWarp, row, 16, site);
  const int slow = lane() / 4, fast = lane() % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    unsigned short pair[2];
    for (int n = 0; n < 2; ++n) {
      const int r = transposed ? fast + n : slow, c = transposed ? slow : fast + n;
      std::memcpy(&pair[n], rows[8 * i + r].bytes + 2 * c, 2);
    }
    tiles[i] = pair[0] | static_cast<unsigned>(pair[1]) << 16U;
  }
}

template <class T>
void multiply_tiles(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site) {
  const int row = lane() / 4, column = lane() % 4 * 2;
  float left[2][16], right[2][16];  // rows `row` and `row` + 8 of a, columns `column` and + 1 of b
  const Slot* slots = warp_barrier(kWarp, a, sizeof a, site);
  for (int k = 0; k < 16; ++k) {
    unsigned registers[4];
    std::memcpy(registers, slots[4 * row + k % 8 / 2].bytes, sizeof registers);
    for (int i = 0; i < 2; ++i) left[i][k] = half_of<T>(registers[k / 8 * 2 + i], k % 2);
  }
  slots = warp_barrier(kWarp, b, sizeof b, site);
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 16; ++k) {
      unsigned registers[2];
      std::memcpy(registers, slots[4 * (column + i) + k % 8 / 2].bytes, sizeof registers);
      right[i][k] = half_of<T>(registers[k / 8], k % 2);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 16; ++k) d[i] = std::fma(left[i / 2][k], right[i % 2][k], d[i]);
  }
}
template void multiply_tiles<__nv_bfloat16>(float (&)[4], const unsigned (&)[4],
                                            const unsigned (&)[2], Site);
template void multiply_tiles<__half>(float (&)[4], const unsigned (&)[4], const unsigned (&)[2],
                                     Site);

void start_copy(void* to, const void* from, std::size_t nbytes, bool is_there) {
  check_alignment(from, nbytes);
  announce(to, nbytes, true);
  std::memset(to, 0xff, nbytes);
  running_grid()->copies().push_back({to, is_there ? from : nullptr, nbytes});
}

void finish_copies() {
  for (const Copy& copy : running_grid()->copies()) {
    announce(copy.to, copy.nbytes, true);
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, copy.nbytes);
    } else {
      announce(copy.from, copy.nbytes, false);
      std::memcpy(copy.to, copy.from, copy.nbytes);
    }
  }
  running_grid()->copies().clear();
}

void check_shared_memory(std::size_t most) {
  const std::size_t nbytes = running_grid()->shared_nbytes();
  if (nbytes <= most) return;
  std::string wrong = fmt::format(
      "says that it has at most {} bytes of dynamic shared memory, but was launched with {}", most,
      nbytes);
  running_grid()->fail_thread(std::move(wrong));
}

void store(void* to, const void* from, std::size_t nbytes) {
  announce(to, nbytes, true);
  std::memcpy(to, from, nbytes);
}

}  // namespace cuda_on_host
