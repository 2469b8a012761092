/// @file
/// Judge: the units as a case prepares them, and what is seen of them afterwards.
#pragma once

#include "graded/expect.h"
#include "task6/handout.h"

#include <string>
#include <vector>

namespace fsdp::graded {

using Lines = std::vector<std::string>;

Handout::Guess guess_of(const Case& asked);
/// The units as the runner's prepare() leaves them.
Handout prepared(const Case& asked);
/// "[2, 0]", and "[0, 2]".
std::string text_of(const Numbers& numbers);
std::string sorted(Numbers numbers);
/// What a runner noted under `key`.
std::string numbers(const Observations& seen, int rank, const std::string& key);
/// States of all units, and what is ahead.
void check_units(Check& check, const Observations& seen, int rank, const Handout& handout,
                 const std::vector<Cause>& causes = {});

}  // namespace fsdp::graded
