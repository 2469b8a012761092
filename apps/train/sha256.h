/// @file
/// @ingroup train
/// SHA-256 (FIPS 180-4): the fingerprint under which two models are compared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace fsdp::train {

/// Takes bytes piece by piece. Written here because the libraries that have it are large; the
/// result is that of the tool sha256sum.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  /// The digest as 64 hexadecimal digits; ends the computation.
  std::string finish();

 private:
  void compress(const std::byte* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_{};
  std::uint64_t nbytes_ = 0;
};

std::string sha256_of(std::span<const std::byte> bytes);

}  // namespace fsdp::train
