/// @file
/// @ingroup config
/// What becomes of every key: of one file (--explain), and of a format (--keys).
#pragma once

#include "config/config.h"

#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::config {

struct Explanation {
  std::string text;      ///< a row per key of the file, then what counts where it is silent
  std::string problems;  ///< what is refused, one problem per line; empty: nothing
};

/// Of a TOML file, ours or torchtitan's, or, if its name ends in .json, of a model's config.json or
/// a DeepSpeed configuration, beside the words of a command line.
Explanation explain(const std::filesystem::path& file, std::vector<std::string> words,
                    ConfigUse use);

/// The formats that have a table of keys: "torchtitan", "deepspeed", "huggingface".
std::vector<std::string> foreign_formats();
/// The table of one of them, in Markdown.
std::string describe_format(const std::string& format);

}  // namespace fsdp::config
