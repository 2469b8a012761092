/// @file
/// What the cases of task 3 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "grader/run.h"

namespace fsdp::graded {

void judge_start(const Ask& ask);
void judge_start_peak(const Ask& ask);
void judge_finish(const Ask& ask);
void judge_reshard(const Ask& ask);
void judge_subgroup(const Ask& ask);
void judge_hooks(const Ask& ask);

}  // namespace fsdp::graded
