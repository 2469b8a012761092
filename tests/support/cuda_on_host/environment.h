/// @file
/// The plan of a program that has no Session, and of tests that hold under every plan.
#pragma once

#include "support/cuda_on_host/session.h"

#include <optional>
#include <string>

namespace cuda_on_host {

/// The plan that the text asks for: "lazy", "eager" or "random", and for another seed than 1,
/// "random:17". Empty: random:1.
/// @throws fsdp::InputError for any other text
Plan plan_named(const std::string& text);

/// plan_named() of the environment variable CUDA_ON_HOST, with_visible_cards().
Plan plan_of_environment();

/// The plan with those of its devices that CUDA_ON_HOST_CARDS lists, as in "2,0". As with CUDA,
/// the list ends at the first word that is no device's number.
Plan with_visible_cards(Plan plan);

/// The same; nothing if the variable is not set, or on a card, which has one plan.
std::optional<Plan> requested_plan();

}  // namespace cuda_on_host
