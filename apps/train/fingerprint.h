/// @file
/// @ingroup train
/// The fingerprint under which the parameters of two models are compared.
#pragma once

#include "tensor/tensor.h"

#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace fsdp::train {

/// SHA-256 (FIPS 180-4) as 64 hexadecimal digits, like that of the tool sha256sum.
std::string sha256_of(std::span<const std::byte> bytes);

/// SHA-256 over a line "path sha256-of-its-bytes" for each parameter, by path: equal if and only if
/// every bit of every parameter is. Takes one parameter at a time, in any order.
class ParameterFingerprint {
 public:
  void add(const std::string& path, const Tensor& full);
  std::string sha256() const;

 private:
  std::map<std::string, std::string> digests_;
};

}  // namespace fsdp::train
