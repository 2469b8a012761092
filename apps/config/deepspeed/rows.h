/// @file
/// @ingroup config
/// The table of DeepSpeed's keys: what becomes of each. One row is one line of the table.
#pragma once

#include "config/foreign/row.h"

namespace fsdp::config::deepspeed {

using foreign::Row;

const std::vector<Row>& rows();

}  // namespace fsdp::config::deepspeed
