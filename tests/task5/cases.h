/// @file
/// What the cases of task 5 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "grader/run.h"

namespace fsdp::graded {

void judge_pieces(const Ask& ask);
void judge_step(const Ask& ask);
void judge_squares(const Ask& ask);
void judge_clip(const Ask& ask);
void judge_state(const Ask& ask);
void judge_reload(const Ask& ask);

}  // namespace fsdp::graded
