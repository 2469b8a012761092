#include "train/fingerprint.h"

#include "tensor/cast.h"

#include <sha2.h>

#include <array>

namespace fsdp::train {

std::string sha256_of(std::span<const std::byte> bytes) {
  std::array<char, SHA256_DIGEST_STRING_LENGTH> digits{};
  SHA256Data(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), digits.data());
  return digits.data();
}

void ParameterFingerprint::add(const std::string& path, const Tensor& full) {
  const Tensor readable = on_host(full);
  digests_[path] = sha256_of({readable.raw(), readable.nbytes()});
}

std::string ParameterFingerprint::sha256() const {
  std::string lines;
  for (const auto& [path, digest] : digests_) lines += path + " " + digest + "\n";
  return sha256_of(std::as_bytes(std::span(lines)));
}

}  // namespace fsdp::train
