/// @file
/// @ingroup config
/// The table of the keys of Hugging Face's config.json, which io/hf_folder.h reads.
#pragma once

#include "config/foreign/row.h"

namespace fsdp::config::hugging_face {

const foreign::Rows& rows();

}  // namespace fsdp::config::hugging_face
