/// @file
/// What the cases of task 7 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_units(const Ask& ask);
void judge_splits(const Ask& ask);
void judge_hooks(const Ask& ask);
void judge_left_out(const Ask& ask);
void judge_gone(const Ask& ask);
void judge_replicated(const Ask& ask);
void judge_training(const Ask& ask);
void judge_gradients(const Ask& ask);
void judge_memory(const Ask& ask);
void judge_visit(const Ask& ask);
void judge_save_full(const Ask& ask);
void judge_load_full(const Ask& ask);
void judge_handover(const Ask& ask);
void judge_slices(const Ask& ask);
void judge_resume(const Ask& ask);
void judge_damaged(const Ask& ask);

}  // namespace fsdp::graded
