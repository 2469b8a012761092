/// @file
/// @ingroup race
/// Plans as text: what a policy's process hands over, and what the judge reads.
#pragma once

#include "optim/reshard.h"
#include "race/policy.h"

#include <string>
#include <string_view>
#include <vector>

namespace fsdp::race {

/// The name under which a plan speaks of what belongs to no other unit.
inline constexpr const char* kRoot = "root";

/// One line of JSON.
std::string to_json(const Plan& plan);
/// @throws InputError that names the field.
Plan plan_from_json(std::string_view text);

/// What a model of this plan is sharded with: within(s), of the largest s up to plan.neighbors that
/// these ranks allow, and never() if they allow none or the plan asks for none.
ReshardAfterForward parts_of(const Plan& plan, int ranks);

/// @throws InputError that names the first field of `plan` that does not fit these modules over
/// these ranks, and what to write instead.
void check_plan(const Plan& plan, const std::vector<Module>& modules, int ranks);

}  // namespace fsdp::race
