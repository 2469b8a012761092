/// @file
/// What the cases of task 6 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_walk(const Setup& setup);
void judge_stale(const Setup& setup);
void judge_start(const Setup& setup);
void judge_begins(const Setup& setup);
void judge_ends(const Setup& setup);
/// `step`: "6.4" looks at the forwards, "6.5" at the backwards.
void judge_iterations(const char* step, const Setup& setup);
void judge_time(const char* step, const Setup& setup);

}  // namespace fsdp::graded
