/// @file
/// @ingroup estimate
/// The command line of unshard-estimate.
#pragma once

#include "estimate/estimator_config.h"
#include "plan/planner.h"
#include "train/command_line.h"

#include <optional>
#include <string>
#include <vector>

namespace fsdp::estimate {

struct CommandLine {
  std::optional<std::string> config;     ///< the TOML file
  std::optional<std::string> deepspeed;  ///< a DeepSpeed configuration (JSON)
  train::ShortForms short_forms;
  std::vector<std::string> overrides;   ///< --section.key VALUE, of all modes
  std::string format = "text";          ///< text or json
  std::optional<std::string> html;      ///< where the page goes
  std::string modules = "few";          ///< few or all: rows of the table by module
  std::optional<std::string> memory;    ///< "80GB" of a device
  std::optional<std::string> margin;    ///< "15%" of what is needed
  std::optional<std::string> limit;     ///< "80GB" of the allocator
  std::string framework;                ///< "pytorch"; empty: the file's own
  std::vector<std::string> compare;     ///< frameworks; empty: one estimate
  std::optional<std::string> measured;  ///< "52.3GiB" of the same training
  bool is_brief = false;                ///< the answer alone
  std::string command;                  ///< all of it, to be given again
  int rank = 0;
  int round_to = 1;
  std::optional<std::string> explain;  ///< print what becomes of each key of this file instead
  std::string keys;                    ///< print the table of this format's keys instead
  std::string figures;                 ///< print figures of others instead: sources, published
  bool worksheet = false;              ///< print the book's worksheet instead
  plan::PlannerLine planner;
};

/// Nothing if only help was asked for. @throws InputError.
std::optional<CommandLine> read_command_line(int argc, const char* const* argv);

/// The configuration that a command line and the environment describe. @throws InputError.
EstimatorConfig configure(const CommandLine& line);

}  // namespace fsdp::estimate
