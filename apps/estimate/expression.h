/// @file
/// @ingroup estimate
/// Arithmetic written as in the book: "4·W·(block + head)".
#pragma once

#include <map>
#include <string>

namespace fsdp::estimate {

/// What the names of an expression stand for.
using Values = std::map<std::string, double>;

/// The value of an expression of numbers, names, + - · / ( ), ceil(a), max(a, b) and min(a, b).
/// Products are computed from the left, so that (W - 1)·P/W of whole numbers is exact below 2^53.
/// @throws Error naming the place for anything else, and for a name without a value.
double evaluate(const std::string& expression, const Values& values);

}  // namespace fsdp::estimate
