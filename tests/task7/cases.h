/// @file
/// What the cases of task 7 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_units(const Setup& setup);
/// @return whether the group was split as often as it should
bool judge_splits(const Setup& setup);
void judge_hooks(const Setup& setup);
void judge_left_out(const Setup& setup);
void judge_gone(const Setup& setup);
void judge_gone_replicated(const Setup& setup);
void judge_replicated(const Setup& setup);
void judge_training(const Setup& setup);
void judge_gradients(const Setup& setup);
void judge_memory(const Setup& setup);
void judge_visit(const Setup& setup);
void judge_save_full(const Setup& setup);
void judge_load_full(const Setup& setup);
void judge_handover(const Setup& setup);
void judge_slices(const Setup& setup);
void judge_resume(const Setup& setup);
void judge_damaged(const Setup& setup);

}  // namespace fsdp::graded
