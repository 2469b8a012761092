/// @file
/// What the cases of task 6 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_walk(const Ask& ask);
void judge_stale(const Ask& ask);
void judge_start(const Ask& ask);
void judge_begins(const Ask& ask);
void judge_ends(const Ask& ask);
/// `step`: "6.4" looks at the forwards, "6.5" at the backwards.
void judge_iterations(const char* step, const Ask& ask);
void judge_time(const char* step, const Ask& ask);

}  // namespace fsdp::graded
