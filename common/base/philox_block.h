/// @file
/// @ingroup base
/// The rounds of philox.h, for the processor and for CUDA kernels.
#pragma once

#include "base/host_device.h"

#include <cstdint>

namespace fsdp {

struct PhiloxBlock {
  std::uint32_t words[4];
};

/// philox4x32() of base/philox.h.
FSDP_HOST_DEVICE inline PhiloxBlock philox_block(PhiloxBlock counter, std::uint32_t key0,
                                                 std::uint32_t key1) {
  // The multipliers and the Weyl increments of the paper (table 2).
  constexpr std::uint64_t kMultiply0 = 0xD2511F53;
  constexpr std::uint64_t kMultiply1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  auto& [c0, c1, c2, c3] = counter.words;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiply0 * c0;
    const std::uint64_t product1 = kMultiply1 * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<std::uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

/// Block `block` of stream `seed`: the words random_word() gives for 4 block … 4 block + 3.
FSDP_HOST_DEVICE inline PhiloxBlock random_block(std::uint64_t seed, std::uint64_t block) {
  return philox_block(
      {{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}},
      static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
}

}  // namespace fsdp
