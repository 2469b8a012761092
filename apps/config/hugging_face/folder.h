/// @file
/// @ingroup config
/// model.from: a folder of Hugging Face, as people have them.
#pragma once

#include "config/foreign/report.h"
#include "io/hf_folder.h"
#include "nn/transformer.h"

#include <string>
#include <vector>

namespace fsdp::config::hugging_face {

/// What a folder says of its model.
struct Folder {
  nn::TransformerConfig model;
  io::HfExtras extras;
  std::vector<std::string> remarks;  ///< of the keys that were passed over
};

/// Reads the config.json of a folder; of a model whose ranks are modeled, `from` may be that file.
/// Each of its keys gets an account in the report, also if there are problems.
/// @throws InputError naming what is there in place of a model (an adapter, a file), what
/// read_hf_config() refuses, or an unknown key that is nearly a known one; one problem per line
Folder read_folder(const std::string& from, bool is_modeled, foreign::Report& report);

}  // namespace fsdp::config::hugging_face
