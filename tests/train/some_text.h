/// @file
/// Data for trainings that last a few steps.
#pragma once

#include "train/data.h"

#include <string>

namespace fsdp::train {

/// 2040 letters, spaces and full stops, for any vocabulary of at least 127.
inline TokenData some_text() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the cat sat on the mat and the dog sat on the log. ";
  return TokenData::from_text(text, "a text", 127);
}

}  // namespace fsdp::train
