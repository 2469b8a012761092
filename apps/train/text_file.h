/// @file
/// @ingroup train
/// Texts to train on, as people have them.
#pragma once

#include <string>
#include <string_view>

namespace fsdp::train {

/// @throws InputError naming the file, what its bytes look like and the way on: for a format that
/// begins with known bytes (gzip, npy, safetensors, …), a NUL, or more than one byte in a thousand
/// that is no UTF-8.
void check_is_text(std::string_view bytes, const std::string& name);

/// Of a file with a JSON object in each line, the texts of `field`, each followed by a newline.
/// @throws InputError naming file, line and field, and the fields that the first line has.
std::string texts_of_lines(std::string_view lines, const std::string& field,
                           const std::string& name);

}  // namespace fsdp::train
