/// @file
/// @ingroup plan
/// The planner's modes of unshard-estimate: --plan, --largest, --sweep, --which-strategy.
#pragma once

#include "nn/transformer.h"
#include "paper/memory_options.h"
#include "plan/largest.h"
#include "plan/machine.h"
#include "program/command_line/option_parser.h"

#include <optional>
#include <string>
#include <vector>

namespace fsdp::plan {

/// What the command line says of them. `memory` and `format` belong to the program's other modes
/// too, which declare them.
struct PlannerLine {
  bool plan = false;
  bool which_strategy = false;
  std::optional<std::string> largest;  ///< "batch"
  std::optional<std::string> sweep;    ///< "world=8..1024"
  std::optional<std::string> svg;      ///< the file of the sweep's picture
  MachineText machine;
  std::optional<std::string> ranks;         ///< "8..64"
  std::optional<std::string> global_batch;  ///< sequences
  std::optional<std::string> memory;        ///< "80GB"
  std::string format = "text";              ///< text or json
  std::vector<std::string> given = {};      ///< keys that the configuration sets

  /// Declares all but memory, format and given.
  void declare(program::OptionParser& parser);
  /// Whether one of these modes is asked for.
  bool is_mode() const { return plan || which_strategy || largest || sweep; }
};

/// What a mode prints.
struct ModeOutput {
  std::string text;
  bool is_found = true;  ///< false: no configuration, or not even one sequence, fits the memory
};

/// @param base the training that the configuration describes
/// @param needed what is compared with --memory; null: the peak. Threads may call it at once
/// @throws InputError naming an option.
ModeOutput run_mode(const PlannerLine& line, const nn::TransformerConfig& model,
                    const std::string& model_name, const paper::MemoryOptions& base,
                    const Needed& needed = {});

}  // namespace fsdp::plan
