/// @file
/// What the cases of task 2 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_layout(const Setup& setup);
void judge_pieces(const Setup& setup);
void judge_shard(const Setup& setup);
void judge_shard_peak(const Setup& setup);
void judge_views(const Setup& setup);
void judge_rounds(const Setup& setup);
void judge_gradients(const Setup& setup);
void judge_units(const Setup& setup);

}  // namespace fsdp::graded
