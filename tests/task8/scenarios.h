/// @file
/// Runner: the scenarios of task 8 are spread over two files.
#pragma once

#include "graded/recorder.h"

namespace fsdp::graded {

/// Those of activation checkpointing: steps 8.4 to 8.6.
Scenarios checkpoint_scenarios();

}  // namespace fsdp::graded
