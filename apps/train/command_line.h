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

/// What was given in a short form, by its key: --ranks is parallel.ranks.
using ShortForms = std::map<std::string, std::string>;

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
  ShortForms short_forms;
};

/// Null if the user asked for help, which has been printed.
/// @throws InputError naming the option that is wrong
std::optional<CommandLine> read_command_line(int argc, const char* const* argv);

/// The words of a configuration, in which a short form is its key. First W, if a launcher has
/// started this process: a configuration file says less of W, and later words may contradict it.
std::vector<std::string> words_of(const ShortForms& short_forms,
                                  const std::vector<std::string>& overrides);
/// @throws InputError if a key and its short form differ: of the two, neither is meant more
void check_short_forms(const ShortForms& short_forms, const config::TrainConfig& config);
/// @throws InputError unless the launcher has started as many processes as the configuration has
///         ranks, or none
void check_launch(const config::TrainConfig& config);

/// Prints what becomes of each key of a file, under these words. Returns the exit status.
/// @throws InputError if a key is refused
int show_explanation(const std::string& file, const std::vector<std::string>& words,
                     bool is_modeled);

/// The configuration of this run. Under a launcher, W is the number of its processes.
/// @throws InputError naming the key or the option that is wrong, or contradicts another
config::TrainConfig configure(const CommandLine& line);

}  // namespace fsdp::train
