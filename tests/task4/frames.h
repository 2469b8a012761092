/// @file
/// Judge: the order in which backward passes the units of a model, from a single process.
#pragma once

#include "task4/notes.h"

#include <string>
#include <vector>

namespace fsdp::graded {

/// The same, with the `order` that micro-step m has (if there are `orders`, they take turns), and
/// what else is called in it: "open" is -1 if whole forwards are dropped, else the layers aside.
Case in_micro_step(Case asked, int m);
/// The units that backward reaches, in the order in which their last call's backward ends.
std::vector<std::string> backward_order(const Case& asked);
/// The unit after `unit` in it; "" if it is the last.
std::string next_in_backward(const Case& asked, const std::string& unit);
/// Those units, then those that are not reached, or of which a call stays open, last unit first.
std::vector<std::string> reduction_order(const Case& asked);
/// Whether backward reaches the unit in a micro-step, and does not in a later one.
bool is_reached_only_before(const Case& asked, const std::string& unit);
/// What backward gathers: the units it reaches, unless they kept their parameters. Sorted, one line
/// per flat parameter.
std::vector<std::string> gathers_of(const Case& asked);
/// The most bytes of full gradients at a moment of micro-step m: of each unit its partial sums, of
/// the unit that computes a whole one, and of the unit before it the one that is being reduced.
std::int64_t most_full_gradients(const Case& asked, int m);

}  // namespace fsdp::graded
