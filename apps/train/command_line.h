/// @file
/// @ingroup train
/// The command line of unshard-train, and the configuration that it and its file make together.
#pragma once

#include "config/config.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::train {

/// What a user asks of unshard-train; "" and null = not given.
struct CommandLine {
  std::optional<std::string> config;         ///< path of a TOML file
  std::optional<std::string> deepspeed;      ///< path of a DeepSpeed configuration
  std::optional<std::string> summary;        ///< path to write
  std::optional<std::string> export_folder;  ///< to write
  std::optional<std::string> picture;        ///< folder to write
  std::optional<std::string> eval;           ///< evaluate on this, and train nothing
  std::optional<std::string> explain;        ///< print what becomes of each key of this
  std::string backend;                 ///< "threads", "processes", "mpi"; "" = as it was started
  std::vector<std::string> overrides;  ///< --section.key VALUE, as written
  std::map<std::string, std::string> short_forms;  ///< of keys, by key
};

/// Null if the user asked for help, which has been printed.
/// @throws InputError naming the option that is wrong
std::optional<CommandLine> read_command_line(int argc, const char* const* argv);

/// The words of a configuration, in which a short form is its key.
std::vector<std::string> words_of(const CommandLine& line);

/// The configuration of this run. Under a launcher, W is the number of its processes.
/// @throws InputError naming the key or the option that is wrong, or contradicts another
config::TrainConfig configure(const CommandLine& line);

}  // namespace fsdp::train
