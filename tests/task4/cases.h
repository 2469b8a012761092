/// @file
/// What the cases of task 4 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_pre_backward(const Ask& ask);
void judge_complete(const Ask& ask);
void judge_start_reduce(const Ask& ask);
void judge_start_reduce_peak(const Ask& ask);
void judge_finish_reduce(const Ask& ask);
void judge_finish_reduce_peak(const Ask& ask);
void judge_until_end(const Ask& ask);
/// Units of one size, in order: at most two full gradients.
void judge_two_gradients(const Ask& ask);
void judge_until_end_peak(const Ask& ask);
/// Several micro-steps; units of one size.
void judge_until_each_end(const Ask& ask);
void judge_whole_backward(const Ask& ask);
void judge_finish(const Ask& ask);
/// Parameters of float64: a leaf, and the average.
void judge_double_leaf(const Ask& ask);
void judge_double_average(const Ask& ask);

}  // namespace fsdp::graded
