/// @file
/// Scenarios of task 2 that have a file of their own.
#pragma once

#include "graded/recorder.h"

namespace fsdp::graded {

/// 2.5  Which unit has which parameter.
void units(Recorder& recorder);

}  // namespace fsdp::graded
