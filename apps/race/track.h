/// @file
/// @ingroup race
/// The tracks of the race: each a model and a machine.
#pragma once

#include "base/clock.h"
#include "nn/transformer.h"
#include "paper/memory_options.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::race {

struct Track {
  int number = 0;     ///< from 1 on
  std::string name;   ///< "a slow link"
  std::string about;  ///< what is hard about it, in one sentence
  nn::TransformerConfig model;
  int ranks = 1;
  std::int64_t batch = 1;  ///< sequences of a rank's only micro-batch
  CostModel machine;
  std::int64_t memory_bytes = 0;  ///< of a rank

  /// The training: FSDP over all ranks, in bfloat16 with sums in float32, and AdamW.
  paper::MemoryOptions options() const;
  /// The same modules, a few elements wide, for runs with data.
  nn::TransformerConfig narrow() const;
};

const std::vector<Track>& tracks();
/// @throws InputError that names --track
const Track& track_of(int number);

}  // namespace fsdp::race
