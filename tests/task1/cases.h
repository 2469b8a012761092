/// @file
/// What the cases of task 1 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_scope(const Setup& setup);
void judge_scope_that_throws(const Setup& setup);
void judge_records(const Setup& setup);
void judge_slices(const Setup& setup);
void judge_slice_peak(const Setup& setup);
void judge_slice_work(const Setup& setup);
void judge_slice_errors(const Setup& setup);
void judge_whole(const Setup& setup);
void judge_on_device(const Setup& setup);
void judge_two_models(const Setup& setup);
void judge_by_parts(const Setup& setup);
void judge_loaded(const Setup& setup);
void judge_strangers(const Setup& setup);

}  // namespace fsdp::graded
