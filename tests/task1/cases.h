/// @file
/// What the cases of task 1 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_scope(const Ask& ask);
void judge_scope_that_throws(const Ask& ask);
void judge_records(const Ask& ask);
void judge_slices(const Ask& ask);
void judge_slice_peak(const Ask& ask);
void judge_slice_errors(const Ask& ask);
void judge_whole(const Ask& ask);
void judge_on_device(const Ask& ask);
void judge_two_models(const Ask& ask);
void judge_by_parts(const Ask& ask);
void judge_loaded(const Ask& ask);
void judge_strangers(const Ask& ask);

}  // namespace fsdp::graded
