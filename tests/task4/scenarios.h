/// @file
/// Runner: the scenarios of task 4 are spread over two files.
#pragma once

#include "graded/recorder.h"

namespace fsdp::graded {

/// Those that run a whole backward: steps 4.5 to 4.7.
Scenarios backward_scenarios();

}  // namespace fsdp::graded
