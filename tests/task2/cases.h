/// @file
/// What the cases of task 2 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_layout(const Ask& ask);
void judge_pieces(const Ask& ask);
void judge_shard(const Ask& ask);
void judge_shard_peak(const Ask& ask);
void judge_views(const Ask& ask);
void judge_rounds(const Ask& ask);
void judge_gradients(const Ask& ask);
void judge_units(const Ask& ask);

}  // namespace fsdp::graded
