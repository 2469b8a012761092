/// @file
/// @ingroup plan
/// The machine that is planned for, as a user describes it.
#pragma once

#include "base/clock.h"
#include "program/command_line/option_parser.h"

#include <optional>
#include <string>

namespace fsdp::plan {

/// Speeds as text: "400T", "50GB/s", "5us". The defaults are about those of one accelerator of 2022
/// in a cluster with one network card for each.
struct MachineText {
  std::optional<std::string> flops;        ///< of the products; 400T
  std::optional<std::string> flops_16;     ///< of those in 16 bits; as flops
  std::optional<std::string> hbm;          ///< device memory; 2TB/s
  std::optional<std::string> link;         ///< bytes a rank receives; 50GB/s
  std::optional<std::string> latency;      ///< of a hop; 5us
  int box = 0;                             ///< ranks in a box; 0 = all
  std::optional<std::string> far_link;     ///< between boxes; a tenth of the link
  std::optional<std::string> far_latency;  ///< 4 times the latency
  std::optional<std::string> bus;          ///< between device and host; none: no offload is planned

  void declare(program::OptionParser& parser);
  /// @throws InputError naming the option.
  CostModel cost_model() const;
};

/// "400 TFLOP/s in every format, memory 2000 GB/s, …"
std::string describe(const CostModel& machine);

}  // namespace fsdp::plan
