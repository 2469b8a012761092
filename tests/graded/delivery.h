/// @file
/// Backends that deliver the bytes of a collective at one fixed moment.
#pragma once

#include "comm/process_group.h"
#include "graded/case.h"

#include <memory>

namespace fsdp::graded {

/// Wraps `inner` so that bytes move as `delivery` says; plain returns it as it is.
std::shared_ptr<Backend> make_delivered(std::shared_ptr<Backend> inner, Delivery delivery);

}  // namespace fsdp::graded
