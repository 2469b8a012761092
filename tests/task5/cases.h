/// @file
/// What the cases of task 5 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_pieces(const Setup& setup);
void judge_step(const Setup& setup);
/// Parameters of float64.
void judge_double_step(const Setup& setup);
void judge_squares(const Setup& setup);
void judge_clip(const Setup& setup);
/// The same with max_norm so far above the norm of the gradient.
void judge_clip_beside(const Setup& setup, double distance);
/// Another rank fails after the all-reduce was started.
void judge_clip_beside_a_failure(const Setup& setup);
void judge_state(const Setup& setup);
void judge_reload(const Setup& setup);

}  // namespace fsdp::graded
