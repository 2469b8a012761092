/// @file
/// Runs in which a rank misbehaves, and what every rank saw of it.
#pragma once

#include "support/toy.h"

#include <functional>
#include <string>
#include <vector>

namespace fsdp::testing {

/// The rank that misbehaves in most of them.
inline constexpr int kCulprit = 1;

/// One line of the table of comm/control_report.h.
struct Row {
  int rank = -1;
  std::string sequence;
  std::string operation;
  std::string unit;
  std::string elements;
  std::string state;
};

/// What a run came to.
struct Outcome {
  int ended = 0;                       ///< ranks whose body has returned or thrown
  std::vector<std::string> seen;       ///< by rank: the message of what its body threw, or ""
  std::vector<bool> aborted;           ///< by rank: it was an Aborted
  std::vector<std::int64_t> leftover;  ///< by rank: bytes still accounted when it had ended
  std::string error;                   ///< of run_ranks()
};

/// Runs `body` on every rank; it is expected to fail.
Outcome run_failing(int world_size, const std::function<void(ProcessGroup&)>& body);

/// The rows of the first table in `message`, by rank.
std::vector<Row> table_in(const std::string& message);

/// What holds however a run fails: every rank has ended, none keeps a byte, and all ranks but those
/// in `returned` saw an error; `culprit` its own, if it threw, the others the same Aborted.
void check_ended(const Outcome& outcome, int world_size, int culprit, bool culprit_threw);

}  // namespace fsdp::testing
