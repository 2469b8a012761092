/// @file
/// @ingroup race
/// Plans as text: what a policy's process hands over, and what the judge reads.
#pragma once

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

/// @throws InputError that names the first field of `plan` that does not fit these modules, and
/// what to write instead.
void check_plan(const Plan& plan, const std::vector<Module>& modules);

}  // namespace fsdp::race
