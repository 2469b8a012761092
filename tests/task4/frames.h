/// @file
/// Judge: the order in which backward passes the units of a model, from a single process.
#pragma once

#include "task4/notes.h"

#include <string>
#include <vector>

namespace fsdp::graded {

/// The same, with the `order` that micro-step m has: if there are `orders`, they take turns.
Case in_micro_step(Case asked, int m);
/// The units that backward reaches, in the order in which their last call's backward ends.
std::vector<std::string> backward_order(const Case& asked);
/// The unit after `unit` in it; "" if it is the last.
std::string next_in_backward(const Case& asked, const std::string& unit);
/// Those units, then those that are not reached, last unit first.
std::vector<std::string> reduction_order(const Case& asked);

}  // namespace fsdp::graded
