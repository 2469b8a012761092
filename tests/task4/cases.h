/// @file
/// What the cases of task 4 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_pre_backward(const Setup& setup);
void judge_complete(const Setup& setup);
void judge_start_reduce(const Setup& setup);
void judge_start_reduce_peak(const Setup& setup);
void judge_finish_reduce(const Setup& setup);
void judge_finish_reduce_peak(const Setup& setup);
/// In a mesh of `replicas`: the sums alone.
void judge_finish_reduce_in_mesh(const Setup& setup);
/// Another rank fails between issue and wait.
void judge_finish_failed(const Setup& setup);
void judge_until_end(const Setup& setup);
/// Units of one size, in order: at most two full gradients.
void judge_two_gradients(const Setup& setup);
void judge_until_end_peak(const Setup& setup);
/// Several micro-steps; units of one size.
void judge_until_each_end(const Setup& setup);
void judge_whole_backward(const Setup& setup);
void judge_finish(const Setup& setup);
/// In a mesh of `replicas`: the values alone.
void judge_finish_in_mesh(const Setup& setup);
/// Parameters of float64: a leaf, and the average.
void judge_double_leaf(const Setup& setup);
void judge_double_average(const Setup& setup);

}  // namespace fsdp::graded
