/// @file
/// What the cases of task 4 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "grader/run.h"

namespace fsdp::graded {

void judge_pre_backward(const Ask& ask);
void judge_queueing(const Ask& ask);
void judge_complete(const Ask& ask);
void judge_start_reduce(const Ask& ask);
void judge_start_reduce_peak(const Ask& ask);
void judge_finish_reduce(const Ask& ask);
void judge_until_end(const Ask& ask);
/// Units of one size, in order: at most two full gradients.
void judge_two_gradients(const Ask& ask);
void judge_until_end_peak(const Ask& ask);
void judge_whole_backward(const Ask& ask);
void judge_finish(const Ask& ask);

}  // namespace fsdp::graded
