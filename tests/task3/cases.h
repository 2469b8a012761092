/// @file
/// What the cases of task 3 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

#include <string>

namespace fsdp::graded {

void judge_start(const Ask& ask);
void judge_start_peak(const Ask& ask);
void judge_finish(const Ask& ask);
void judge_reshard(const Ask& ask);
void judge_subgroup(const Ask& ask);
/// Calls on one unit in the order of option "calls", letter by letter (scenarios.cpp).
void judge_calls(const std::string& step, const Ask& ask);
void judge_hooks(const Ask& ask);
void judge_destroyed(const Ask& ask);

}  // namespace fsdp::graded
