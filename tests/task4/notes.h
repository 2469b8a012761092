/// @file
/// Judge: what the scenarios of task 4 noted, made comparable.
#pragma once

#include "task4/oracle.h"

#include <string>
#include <vector>

namespace fsdp::graded {

/// All but the gathers of parameters: "reduce_scatter layers.0/gradient of 8 float32 per rank".
/// What one unit starts in a row is sorted.
std::vector<std::string> reductions_in(const Json& collectives);
/// The gathers of parameters: "all_gather layers.0/backward", sorted.
std::vector<std::string> gathers_in(const Json& collectives);
std::string gather_line(const std::string& unit);
/// What one unit is to start: one per trainable flat parameter, sorted.
std::vector<std::string> reductions_of(const UnitLayout& unit, int world_size,
                                       DType dtype = DType::float32);
/// `line`, once for every trainable flat parameter of a unit.
std::vector<std::string> for_each_flat(const UnitLayout& unit, const std::string& line);
/// How many sums of a binary counter are alive after `leaves` leaves.
std::int64_t partials(int leaves);

/// "name.3".
std::string key_of(const std::string& name, std::size_t index);
/// The peak of memory under `key`, above what was held before.
std::int64_t grown(const Observations& seen, int rank, const std::string& key);
/// No copy was made outside the memory tracker while the peak under `key` was watched.
void check_heap(Check& check, const Observations& seen, int rank, const std::string& key);

/// The elements of a float64 tensor noted with Recorder::values(), with all their digits.
std::vector<std::string> digits_in(const Observations& seen, int rank, const std::string& key);
std::vector<std::string> digits_of(const std::vector<double>& values);

/// `step`, or that of the casts under mixed precision.
std::string step_of(const std::string& step, const Case& asked);
/// No micro-step of "start_reduce" threw.
bool check_started(const Observations& seen, int steps);

/// As vectors of bits: NaN equals NaN, and +0 is not -0.
bool same(const Floats& a, const Floats& b);
Floats times(Floats values, float factor);

}  // namespace fsdp::graded
