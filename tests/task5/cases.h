/// @file
/// What the cases of task 5 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_pieces(const Ask& ask);
void judge_step(const Ask& ask);
/// Parameters of float64.
void judge_double_step(const Ask& ask);
void judge_squares(const Ask& ask);
void judge_clip(const Ask& ask);
/// The same with max_norm so far above the norm of the gradient.
void judge_clip_beside(const Ask& ask, double distance);
void judge_state(const Ask& ask);
void judge_reload(const Ask& ask);

}  // namespace fsdp::graded
