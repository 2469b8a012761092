/// @file
/// DeepSpeed configurations for tests.
#pragma once

#include "config/config.h"
#include "io/file_io.h"
#include "support/temporary_folder.h"

#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::train {

/// What `json` makes of a configuration, beside a TOML file (none if empty) and a command line.
inline config::TrainConfig load_deepspeed(const std::string& json,
                                          const std::vector<std::string>& overrides = {},
                                          const std::string& toml = "") {
  const testing::TemporaryFolder folder;
  io::write_text_atomically(folder / "ds.json", json);
  if (toml.empty()) return config::load_config(std::nullopt, overrides, folder / "ds.json");
  io::write_text_atomically(folder / "run.toml", toml);
  return config::load_config(folder / "run.toml", overrides, folder / "ds.json");
}

/// The message about it, without the path of the temporary folder; "" if there is none.
inline std::string complaint_about_deepspeed(const std::string& json,
                                             const std::vector<std::string>& overrides = {},
                                             const std::string& toml = "") {
  const testing::TemporaryFolder folder;
  io::write_text_atomically(folder / "ds.json", json);
  io::write_text_atomically(folder / "run.toml", toml + "\n");
  try {
    config::load_config(folder / "run.toml", overrides, folder / "ds.json");
    return "";
  } catch (const std::exception& error) {
    std::string message = error.what();
    const std::string path = folder.path().string() + "/";
    for (auto at = message.find(path); at != std::string::npos; at = message.find(path)) {
      message.erase(at, path.size());
    }
    return message;
  }
}

}  // namespace fsdp::train
