/// @file
/// @ingroup config
/// The table of torchtitan's keys, from its first spelling to its last. One row is one line of it.
#pragma once

#include "config/foreign/row.h"

namespace fsdp::config::titan {

using foreign::Row;

const std::vector<Row>& rows();

}  // namespace fsdp::config::titan
