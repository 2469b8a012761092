/// @file
/// @ingroup train
/// Results of runs as JSON and as numbers for people.
#pragma once

#include "train/evaluation.h"
#include "train/trainer.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::train {

/// A run and what the formula of the writeup allows its ranks.
struct BoundedRun {
  RunResult run;
  std::int64_t bound_bytes = 0;
};

/// True if all runs have the same losses and parameters, to the last bit. Each must have as many
/// steps.
bool are_bit_identical(const std::vector<BoundedRun>& runs);

/// {"generator": "made by unshard", "bit_identical": bool,
/// "runs": [{"strategy", "world_size", "losses", "param_sha256", "peak_bytes", "bound_bytes",
/// "categories", "comm_bytes", "comm_formula_bytes", "tokens_per_second"}]}; and if there were
/// evaluations, a run's "validation": [{"step", "loss", "perplexity"}]
std::string to_json(const std::vector<BoundedRun>& runs);

/// {"generator": "made by unshard", "evaluation": {"data", "tokens", "strategy", "world_size",
/// "seq_len", "windows", "loss", "perplexity", "peak_bytes"}}; and for a checkpoint "step"
std::string to_json(const config::TrainConfig& config, const TokenData& data,
                    const EvaluationResult& evaluation);

/// "12.3 MB" (1 MB = 10^6 bytes).
std::string show_bytes(std::int64_t nbytes);

/// "about 12 min left", from the seconds that the steps done so far took; empty if nothing is known
/// or left.
std::string show_left(double seconds, std::int64_t steps_done, std::int64_t steps_left);

/// "step  7/100  loss 5.5123  lr 1.00e-03  norm 1.234  5678 tokens/s  peak 12.3 MB  about 8 s
/// left"
/// @param clips whether the norm is known
std::string describe(const StepReport& step, bool clips);
/// "  forward 1.2 ms  backward 3.4 ms  reduce 0.1 ms  step 0.5 ms"
std::string describe(const PhaseSeconds& seconds);

}  // namespace fsdp::train
