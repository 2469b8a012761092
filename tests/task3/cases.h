/// @file
/// What the cases of task 3 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

#include <string>

namespace fsdp::graded {

void judge_start(const Setup& setup);
void judge_start_peak(const Setup& setup);
void judge_finish(const Setup& setup);
void judge_reshard(const Setup& setup);
void judge_subgroup(const Setup& setup);
/// Calls on one unit in the order of option "calls", letter by letter (scenarios.cpp).
void judge_calls(const std::string& step, const Setup& setup);
/// The last of option "calls" ends a gather of which another rank has failed. `call`: its name.
void judge_failure(const std::string& step, const std::string& call, const Setup& setup);
void judge_hooks(const Setup& setup);
void judge_destroyed(const Setup& setup);

}  // namespace fsdp::graded
