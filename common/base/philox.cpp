#include "base/philox.h"

#include "base/philox_block.h"

namespace fsdp {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  const PhiloxBlock block =
      philox_block({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
  return {block.words[0], block.words[1], block.words[2], block.words[3]};
}

std::uint32_t random_word(std::uint64_t seed, std::uint64_t index) {
  return random_block(seed, index / 4).words[index % 4];
}

}  // namespace fsdp
