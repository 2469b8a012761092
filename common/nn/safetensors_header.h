/// @file
/// @ingroup nn
/// The header of a safetensors file, on its own: text in, checked entries out, and back.
#pragma once

#include "nn/safetensors.h"

#include <map>
#include <string>
#include <vector>

namespace fsdp::nn {

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Reads and checks the header: what is accepted describes every byte of the file exactly once.
/// @throws InputError naming the file, what is wrong with it, and the remedy.
SafetensorsHeader parse_safetensors_header(const File& file);

/// The JSON text for these tensors, one after the other, padded with spaces so that data begins at
/// a multiple of 8 bytes (the length before the header counted).
std::string make_safetensors_header(const std::vector<SafetensorsWriter::Item>& items,
                                    const std::map<std::string, std::string>& metadata);

}  // namespace fsdp::nn
