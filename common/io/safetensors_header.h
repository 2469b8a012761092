/// @file
/// @ingroup io
/// The header of a safetensors file, alone: text in, checked entries out, and back.
#pragma once

#include "io/safetensors.h"

#include <map>
#include <string>
#include <vector>

namespace fsdp::io {

/// The metadata key under which a header holds its own checksum (CRC-32, eight hexadecimal digits,
/// taken while they are zeros). To get one, pass kNoChecksum as its value.
inline constexpr const char* kHeaderChecksum = "unshard_header_crc32";
inline constexpr const char* kNoChecksum = "00000000";

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Reads and checks the header. An accepted header describes every byte of the file exactly once,
/// and matches its checksum if it has one.
/// @throws InputError naming the file, what is wrong with it, and the remedy.
SafetensorsHeader parse_safetensors_header(const File& file);

/// The JSON text for these tensors, one after the other. It is padded with spaces so that data
/// begins at a multiple of 8 bytes (counting the length before the header).
std::string make_safetensors_header(const std::vector<SafetensorsWriter::Item>& items,
                                    const std::map<std::string, std::string>& metadata);

}  // namespace fsdp::io
